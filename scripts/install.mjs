// Installs the npm packages of the app and of the tests, only when the lock file changed.

import { run } from "./run.mjs";
import { stampOf, unlessStamped } from "./stamp.mjs";

export function install() {
	const stamp = stampOf(["package-lock.json"], { words: [process.version, process.platform, process.arch] });
	unlessStamped("node_modules/.millpond-stamp", stamp, ["node_modules"], () => {
		console.log("installing the app's packages");
		run("npm", ["ci", "--no-fund", "--no-audit", "--loglevel=error"]);
	});
}
