// Running other programs from the repository's root.

import { spawn, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

/** The repository's root, where every command runs. */
export const root = fileURLToPath(new URL("..", import.meta.url));

const windows = process.platform === "win32";

/** The path of the binary that `npm run build` makes. */
export const binary = windows ? "bin/millpond.exe" : "bin/millpond";

/** Says what is wrong, for people, and ends the script. */
export function fail(message) {
	console.error(message);
	process.exit(1);
}

function explain(program, error) {
	const hints = { go: "install Go 1.26 or newer from https://go.dev/dl/", npm: "install Node.js 20.19 or newer" };
	return error.code === "ENOENT" ? `${program} is not installed: ${hints[program] ?? `install ${program}`}` : error.message;
}

// npm is a script on Windows, which only a shell starts.
const shellFor = (program) => windows && program === "npm";

/** Runs a command to its end with this terminal, and ends the script where the command fails. */
export function run(program, args, env = {}) {
	const result = spawnSync(program, args, {
		cwd: root,
		stdio: "inherit",
		env: { ...process.env, ...env },
		shell: shellFor(program),
	});
	if (result.error) fail(explain(program, result.error));
	if (result.status !== 0) fail(`${[program, ...args].join(" ")}: exit ${result.status ?? result.signal}`);
}

/** Runs a command and returns what it wrote to standard output; null where it failed or is not there. */
export function read(program, args, env = {}) {
	const result = spawnSync(program, args, {
		cwd: root,
		encoding: "utf8",
		stdio: ["ignore", "pipe", "ignore"],
		env: { ...process.env, ...env },
		shell: shellFor(program),
	});
	return result.status === 0 ? result.stdout : null;
}

/** Starts a command with this terminal and returns the child. Its end is the caller's to await. */
export function start(program, args, env = {}) {
	const child = spawn(program, args, {
		cwd: root,
		stdio: "inherit",
		env: { ...process.env, ...env },
		shell: shellFor(program),
	});
	child.on("error", (error) => fail(explain(program, error)));
	return child;
}

/**
 * Becomes the child as far as Node can: passes signals on, and ends as the child ends. A companion lives and ends with it.
 * A terminal's Ctrl+C reaches both by itself, so it is passed on only where there is no terminal:
 * the server must not see it twice.
 */
export function become(child, companion) {
	let told = false; // the terminal has told the companion
	for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
	process.on("SIGINT", () => {
		if (process.stdin.isTTY) told = true;
		else child.kill("SIGINT");
	});
	// npm hands a signal to the shell between it and this script, and that shell ends without a word: being orphaned is the word.
	const parent = process.ppid;
	const watch = setInterval(() => {
		if (process.ppid === parent) return;
		clearInterval(watch);
		child.kill("SIGTERM");
	}, 250);
	const over = companion && new Promise((resolve) => companion.on("exit", resolve));
	over?.then(() => child.kill());
	child.on("exit", async (code, signal) => {
		clearInterval(watch);
		if (!told) companion?.kill();
		await over;
		if (signal) {
			process.removeAllListeners(signal);
			process.kill(process.pid, signal);
		} else process.exit(code);
	});
}
