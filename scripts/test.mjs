// Everything that must hold before a change lands, cheapest first; the first failure ends it.
// `npm test -- lint go` runs only the named steps.

import { readFileSync, readdirSync, rmSync } from "node:fs";
import { devNull } from "node:os";
import { join } from "node:path";
import { buildApp, buildBinary, goBuild } from "./build.mjs";
import { clients } from "./chromium.mjs";
import { goTests, halves, playwrightCounts, vitestCounts } from "./count.mjs";
import { install } from "./install.mjs";
import { binary, fail, read, root, run } from "./run.mjs";

const results = "e2e/results";
// A cold build for one takes a minute and a half of a core: `npm test` checks the types on each system (no file of ours is for one architecture), and
// `npm test -- everywhere` builds them all.
const platforms = ["linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"];
const systems = ["darwin/arm64", "windows/amd64"]; // and this machine's
const goTool = (name, ...args) => ["tool", "-modfile=scripts/tools.mod", name, ...args];
const packages = () => read("go", ["list", "./..."]).trim().split("\n");

// One build of each package serves all steps, the binary's included; only the race detector has builds of its own, with cgo.
process.env.GOFLAGS = `${read("go", ["env", "GOFLAGS"])?.trim() ?? ""} -trimpath`.trim();
process.env.CGO_ENABLED = "0";

const timeout = "-timeout=15m";
const race = ["-race", "-short", timeout];
const cgo = { CGO_ENABLED: "1", GORACE: "atexit_sleep_ms=0" }; // else each process that a test starts takes a second more to end
const slow = ["millpond/proxy", "millpond/storage"];
// Packages that start no goroutine, and the program's own, whose tests are each a process or more: the race detector sees nothing in them, and makes
// decoding and each start ten times as slow. Who calls them runs with it.
const alone = /^millpond(\/(content|migrations)(\/.*)?)?$/;
// Tests in which one goroutine does most of the work, and floods, of which one round shows a race or none: with the race detector they take minutes.
// They run without it.
const heavy =
	"^Test(Repair|Damaged|Compact|WithoutAnIndex|WhatNoIndexTellsOf|IndexThatLies|RewritingIsKilled|ResidentSize|BodiesOfEverySize|Floods$|FieldsOfOpen|ManyHosts|ManyBadInputs|HTTP2StalledDiskHoldsWideWindows|HTTP2ManyRequests|KilledWhileRecording|FilterFindsWhatRowsSay)";
const raced = (name) => !/^millpond\/(e2e|scripts)(\/|$)/.test(name) && !alone.test(name);

/** Names the tests that ask testing.Short, and their packages. */
function shortened() {
	const found = { tests: [], packages: new Set() };
	for (const line of read("go", ["list", "-f", "{{.ImportPath}} {{.Dir}}", "./..."]).trim().split("\n")) {
		const [path, dir] = line.split(/ (.*)/);
		for (const file of readdirSync(dir).filter((name) => name.endsWith("_test.go"))) {
			for (const fn of readFileSync(join(dir, file), "utf8").split(/^func /m)) {
				if (!fn.includes("testing.Short()")) continue;
				found.tests.push(fn.match(/^Test\w+/)?.[0] ?? fail(`${file}: not a test asks testing.Short`));
				found.packages.add(path);
			}
		}
	}
	return found;
}

// Each step returns the counts of its tests, or nothing where it is one check.
const steps = {
	packages: install,
	format() {
		const wrong = read("go", goTool("gofumpt", "-l", "."));
		if (wrong === null) fail("gofumpt does not run");
		if (wrong) fail(`not formatted as gofumpt does (npm run format mends it):\n${wrong}`);
	},
	app: buildApp,
	vet: () => run("go", ["vet", "./..."]),
	staticcheck: () => run("go", goTool("staticcheck", "./...")),
	lint: () => run("npx", ["oxlint", "--deny-warnings"]),
	types() {
		// That web/openapi.json is the program's is a Go test's.
		const generated = `${results}/api.d.ts`;
		run("npx", ["openapi-typescript", "web/openapi.json", "-o", generated]);
		const [want, got] = [generated, "web/src/api.d.ts"].map((path) => readFileSync(join(root, path), "utf8"));
		if (got !== want) fail("web/src/api.d.ts is not made from web/openapi.json: npm run api");
		run("npx", ["tsc", "--noEmit", "--project", "web"]);
		run("npx", ["tsc", "--noEmit", "--project", "e2e"]);
	},
	vitest() {
		const report = `${results}/vitest.json`;
		const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${join(root, report)}`];
		run("npm", ["run", "--silent", "test", "--workspace", "web", "--", ...reporters]);
		return vitestCounts(report);
	},
	go() {
		const others = packages().filter((name) => raced(name) && !slow.includes(name));
		// In a process tests run one after the other, as each asserts that it leaves no goroutine behind: so the largest packages run in two processes each.
		const [proxy, storage] = slow.map((name) => halves(name, race, cgo, heavy));
		return goTests([...proxy, ...storage, [...race, "-p=1", `-skip=${heavy}`, ...others]].map((args) => [args, cgo]));
	},
	build: buildBinary,
	platforms: () => run("go", ["run", "-modfile=scripts/tools.mod", "scripts/typecheck.go", ...systems]),
	// What runs without the race detector: the tests that need none, and those that drive the program from outside, of which it would see nothing.
	program() {
		clients();
		const env = { MILLPOND_BINARY: join(root, binary), MILLPOND_GIB: "1" };
		const whole = "millpond/e2e"; // many of its tests wait for disks that stall and processes that are killed: so it runs in two processes
		const [first, second] = halves(whole, [timeout], env);
		const others = packages().filter((name) => name.startsWith(`${whole}/`));
		return goTests([
			[first, env],
			[second, env],
			[[timeout, "-p=1", ...others], env],
			[["-short", timeout, "-p=1", ...packages().filter((name) => alone.test(name))]],
			[["-short", timeout, "-p=1", `-run=${heavy}`, ...packages().filter(raced)]],
		]);
	},
	browser() {
		const report = `${results}/browser.json`;
		run("npm", ["run", "--silent", "test", "--workspace", "e2e"], {
			CHROMIUM: clients(),
			PLAYWRIGHT_JSON_OUTPUT_FILE: join(root, report),
		});
		return playwrightCounts(report);
	},
	bench() {
		run("go", ["build", "-o", "bin/bench", "./e2e/bench"]);
		run("bin/bench", ["--millpond", binary, "--smoke"]);
		run("bin/bench", ["million", "--millpond", binary, "--smoke", "--sessions", "20000", "--dir", `${results}/million`]);
	},
};

const onlyAsked = {
	// What -short made less of, whole: before a release.
	long() {
		const asking = shortened();
		return goTests([...asking.packages].map((name) => [[timeout, `-run=^(${asking.tests.join("|")})$`, name]]));
	},
	everywhere: () => buildFor(platforms),
};

function buildFor(names) {
	for (const name of names) {
		console.log(name);
		const [GOOS, GOARCH] = name.split("/");
		run("go", [...goBuild, "-o", devNull, "."], { GOOS, GOARCH });
	}
}

const asked = process.argv.slice(2);
const known = { ...steps, ...onlyAsked };
for (const name of asked) if (!known[name]) fail(`no step ${name}; there are ${Object.keys(known).join(", ")}`);

const total = { passed: 0, failed: 0, skipped: 0 };
const times = [];
let running = "";

process.on("exit", (code) => {
	console.log(`\n${times.join("\n")}`);
	if (code !== 0) console.log(`FAILED at: ${running}`);
	const skipped = total.skipped > 0 ? `, ${total.skipped} skipped` : "";
	console.log(`${total.passed} passed, ${total.failed + (code !== 0 && total.failed === 0 ? 1 : 0)} failed${skipped}`);
});

rmSync(join(root, results), { recursive: true, force: true });
for (const name of asked.length > 0 ? asked : Object.keys(steps)) {
	running = name;
	console.log(`\n== ${name}`);
	const began = Date.now();
	const counts = (await known[name]()) ?? { passed: 1, failed: 0, skipped: 0 };
	for (const key of Object.keys(total)) total[key] += counts[key];
	times.push(`${name.padEnd(12)} ${((Date.now() - began) / 1000).toFixed(1).padStart(7)} s`);
	if (counts.failed > 0) process.exit(1);
}
