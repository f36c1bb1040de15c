// The app with hot reload, against a server that runs already, or else against one that this script starts.

import { buildBinary } from "./build.mjs";
import { install } from "./install.mjs";
import { become, binary, start } from "./run.mjs";

const address = process.env.MILLPOND_DASHBOARD ?? "127.0.0.1:8081";
const dashboard = process.env.MILLPOND ?? `http://${address}`;

async function serves() {
	try {
		return (await fetch(`${dashboard}/healthz`)).ok;
	} catch {
		return false;
	}
}

install();
let server;
if (!(await serves())) {
	buildBinary();
	server = start(binary, process.argv.slice(2), { MILLPOND_DASHBOARD: address });
}
// Without npm between: it would keep a signal from the app's server.
become(start(process.execPath, ["node_modules/vite/bin/vite.js", "web"], { MILLPOND: dashboard }), server);
