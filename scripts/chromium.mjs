// Finds the browser and the client that the whole-program tests use; on Debian and its kin, installs what is missing.

import { existsSync } from "node:fs";
import { fail, read, run } from "./run.mjs";

const browsers = [
	process.env.CHROMIUM,
	"/usr/bin/chromium",
	"/usr/bin/chromium-browser",
	"/usr/bin/google-chrome",
	"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	"/Applications/Chromium.app/Contents/MacOS/Chromium",
	"C:\\Program Files\\Google\\Chrome\\Application\\chrome.exe",
];

const findBrowser = () => browsers.find((path) => path && existsSync(path));
const hasCurl = () => read("curl", ["--version"]) !== null;

/** Makes sure that curl and Chromium (or Chrome) are there, and returns the browser's path. */
export function clients() {
	const missing = [];
	if (!findBrowser()) missing.push("chromium");
	if (!hasCurl()) missing.push("curl");
	if (missing.length > 0) installPackages(missing);
	const browser = findBrowser();
	if (!browser || !hasCurl())
		fail(`the tests need ${missing.join(" and ")}: install it, or name the browser in the environment variable CHROMIUM`);
	return browser;
}

function installPackages(names) {
	const root = process.getuid?.() === 0;
	if (read("apt-get", ["--version"]) === null || !(root || read("sudo", ["-n", "true"]) !== null)) return;
	const apt = (...args) => run(root ? "apt-get" : "sudo", root ? args : ["-n", "apt-get", ...args], { DEBIAN_FRONTEND: "noninteractive" });
	console.log(`installing ${names.join(" and ")}`);
	apt("-qq", "update");
	apt("-qq", "-y", "--no-install-recommends", "install", ...names);
}
