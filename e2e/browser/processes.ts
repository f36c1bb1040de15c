import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));

/** The path of a program that was built. */
export const bin = (name: string) => `${root}bin/${name}${process.platform === "win32" ? ".exe" : ""}`;

/** A running program that said, in lines of a word and a value, where it listens. */
export interface Running {
	said: Record<string, string>;
	log: () => string;
	stop: () => Promise<void>;
}

/** Starts the program and waits until it has said each of the words. */
export async function launch(words: string[], program: string, ...args: string[]): Promise<Running> {
	const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
	const exited = once(child, "exit");
	let log = "";
	child.stderr.on("data", (data) => {
		log = (log + data).slice(-256 * 1024);
	});
	const said: Record<string, string> = {};
	for await (const line of createInterface({ input: child.stdout })) {
		const [word, ...value] = line.split(" ");
		said[word ?? ""] = value.join(" ");
		if (words.every((w) => w in said)) {
			child.stdout.resume(); // leaving the loop has paused it
			return { said, log: () => log, stop: () => stop(child, exited) };
		}
	}
	await exited;
	throw new Error(`${program} ended before it was ready:\n${log}`);
}

async function stop(child: ChildProcess, exited: Promise<unknown>) {
	if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
	await exited;
}
