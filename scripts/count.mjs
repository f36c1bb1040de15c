// Counts what the test runners report, and shows of `go test` what a person wants to read.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fail, read, root } from "./run.mjs";

/** Runs `go test -json` with the arguments. Prints a line for each package, and the output of what failed or was skipped. */
export async function goTest(args, env = {}) {
	const child = spawn("go", ["test", "-json", ...args], {
		cwd: root,
		stdio: ["ignore", "pipe", "inherit"],
		env: { ...process.env, ...env },
	});
	const ended = new Promise((resolve, reject) => {
		child.on("error", reject);
		child.on("exit", resolve);
	});
	const counts = { passed: 0, failed: 0, skipped: 0 };
	const output = new Map(); // by package and test; forgotten as soon as it passed
	for await (const line of createInterface({ input: child.stdout })) {
		if (!line.startsWith("{")) {
			console.log(line);
			continue;
		}
		const event = JSON.parse(line);
		// Build problems come with ImportPath, all else with Package.
		const key = `${event.Package ?? event.ImportPath} ${event.Test ?? ""}`;
		if (event.Action === "output" || event.Action === "build-output") {
			if (/^=== (RUN|PAUSE|CONT|NAME) /.test(event.Output)) continue;
			output.set(key, (output.get(key) ?? "") + event.Output);
		} else if (["pass", "fail", "skip", "build-fail"].includes(event.Action)) {
			const text = output.get(key) ?? "";
			output.delete(key);
			if (event.Test) counts[{ pass: "passed", fail: "failed", skip: "skipped" }[event.Action]] += 1;
			if (event.Action !== "pass" && (event.Test || !text.includes("[no test files]"))) process.stdout.write(text);
			else if (!event.Test && text.startsWith("ok")) console.log(text.trimEnd());
			else if (!event.Test) console.log(lastLine(text));
		}
	}
	const code = await ended;
	if (code !== 0) for (const text of output.values()) process.stdout.write(text); // of tests that never ended, as at a timeout
	if (code !== 0 && counts.failed === 0) counts.failed = 1;
	return counts;
}

/**
 * Runs several `go test`, each with its arguments and environment, and adds their counts: three at a time, as they wait for disks and clocks as much as
 * they work. Where one fails, no further one begins.
 */
export async function goTests(jobs) {
	const total = { passed: 0, failed: 0, skipped: 0 };
	const waiting = [...jobs];
	const lane = async () => {
		while (waiting.length > 0 && total.failed === 0) {
			const counts = await goTest(...waiting.shift());
			for (const key of Object.keys(total)) total[key] += counts[key];
		}
	};
	await Promise.all([lane(), lane(), lane()]);
	return total;
}

/**
 * Splits a package's tests into two runs, as arguments of `go test`: the names in one are skipped by the other, so none is in neither, but
 * those that both skip.
 */
export function halves(name, args, env, skipped = "^$") {
	const tests = read("go", ["test", ...args, "-list=^Test", name], env)?.split("\n").filter((line) => /^Test\w+$/.test(line));
	if (!tests?.length) fail(`${name} does not build, or has no tests`);
	const half = `^(${tests.filter((_, i) => i % 2 === 0).join("|")})$`;
	return [
		[...args, `-run=${half}`, `-skip=${skipped}`, name],
		[...args, `-skip=${half}|${skipped}`, name],
	];
}

const lastLine = (text) => text.trimEnd().split("\n").at(-1);

/** Reads the counts that vitest wrote with its JSON reporter. */
export function vitestCounts(path) {
	const report = JSON.parse(readFileSync(join(root, path), "utf8"));
	return { passed: report.numPassedTests, failed: report.numFailedTests, skipped: report.numPendingTests };
}

/** Reads the counts that Playwright wrote with its JSON reporter. */
export function playwrightCounts(path) {
	const { stats } = JSON.parse(readFileSync(join(root, path), "utf8"));
	return { passed: stats.expected + stats.flaky, failed: stats.unexpected, skipped: stats.skipped };
}
