// Builds the browser app into web/dist and the static binary, which holds the app, into bin. Makes only what changed.

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { install } from "./install.mjs";
import { binary, read, root, run } from "./run.mjs";
import { stampOf, unlessStamped } from "./stamp.mjs";

/** What the app is made from. */
const appStamp = () => stampOf(["web", "package-lock.json"], { keep: (file) => !file.endsWith(".go") });

/** What `go build` for a release adds: no paths of this machine, no debugger's tables (profiles need none). */
export const goBuild = ["build", "-trimpath", "-ldflags=-s -w"];

export function buildApp() {
	unlessStamped("bin/.app-stamp", appStamp(), ["web/dist/index.html"], () => {
		console.log("building the app");
		run("npm", ["run", "--silent", "build", "--workspace", "web"]);
		// The empty file keeps the folder in git, so that `go build` works on a fresh clone without the app.
		if (!existsSync(join(root, "web/dist/.keep"))) writeFileSync(join(root, "web/dist/.keep"), "");
	});
}

export function buildBinary() {
	const go = read("go", ["env", "GOVERSION", "GOOS", "GOARCH"]);
	const stamp = stampOf(["."], {
		keep: (file) => /\.(go|mod|sum)$/.test(file) && !file.endsWith("_test.go"),
		words: [go, goBuild, appStamp(), stampOf(["server/setup"])],
	});
	unlessStamped("bin/.binary-stamp", stamp, [binary], () => {
		console.log("building the program");
		run("go", [...goBuild, "-o", binary, "."], { CGO_ENABLED: "0" });
	});
}

export function build() {
	install();
	buildApp();
	buildBinary();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) build();
