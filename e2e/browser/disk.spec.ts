import { execFile, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, type Summary, test as base } from "./fixtures.ts";
import { bin, launch } from "./processes.ts";

/** Millpond with its data on a disk of 48 MB, which a test fills. */
interface SmallDisk {
	dashboard: string;
	/** The SHA-256 of what a client gets from the address through Millpond. */
	fetch: (address: string) => Promise<string>;
	sessions: (filter: string) => Promise<Summary[]>;
}

const test = base.extend<{ small: SmallDisk }>({
	small: async ({ origin }, use, info) => {
		const disk = mkdtempSync(join(tmpdir(), "millpond-disk-"));
		try {
			execFileSync("mount", ["-t", "tmpfs", "-o", "size=48m", "none", disk], { stdio: "pipe" });
		} catch (error) {
			rmdirSync(disk);
			test.skip(true, `NOT RUN: a small disk cannot be mounted here (it needs root): ${String(error)}`);
		}
		try {
			const free = "127.0.0.1:0";
			const args = ["--data", join(disk, "data"), "--proxy", free, "--dashboard", free, "--upstream-ca", origin.ca];
			const running = await launch(["dashboard", "proxy", "ca"], bin("millpond"), ...args);
			const link = new URL(running.said.dashboard ?? "");
			const headers = { Authorization: `Bearer ${link.hash.slice("#token=".length)}` };
			await use({
				dashboard: link.href,
				fetch: (address) => sha256(["--proxy", `http://${running.said.proxy}`, "--cacert", running.said.ca ?? "", address]),
				sessions: async (filter) => {
					const res = await fetch(`${link.origin}/api/sessions?limit=500&filter=${encodeURIComponent(filter)}`, { headers });
					return ((await res.json()) as { sessions: Summary[] }).sessions;
				},
			});
			await running.stop();
			if (info.status !== info.expectedStatus) await info.attach("millpond.log", { body: running.log() });
		} finally {
			execFileSync("umount", [disk]);
			rmdirSync(disk);
		}
	},
});

test("a full disk is told, what passes is not hurt, and capture comes back when sessions are deleted", async ({ small, origin, page }, info) => {
	await page.goto(small.dashboard);
	await expect(page.getByRole("status").filter({ hasText: /^Recording$/ })).toBeVisible();

	const bodies = [1, 2, 3, 4].map((seed) => `/get/large-${seed}?seed=${seed}&size=16777216&framing=length`);
	const got = await Promise.all(bodies.map((path) => small.fetch(origin.url("https", path))));
	const want = await Promise.all(bodies.map((path) => sha256(["--cacert", origin.ca, origin.url("https", path)])));
	expect(got).toEqual(want);

	const alert = page.getByRole("alert").filter({ hasText: "the disk is full" });
	await expect(alert).toBeVisible();
	await expect(page.getByRole("status").filter({ hasText: /^Not recording$/ })).toBeVisible();
	await page.getByRole("row").filter({ hasText: "/get/large-1" }).click();
	await expect(page.getByText(/captured to byte \d+: the disk is full/).first()).toBeVisible();
	await info.attach("the disk is full", { body: await page.screenshot(), contentType: "image/png" });

	await page.getByRole("button", { name: "Clear…", exact: true }).click();
	await page.getByRole("button", { name: /^Delete all/ }).click();
	await expect(alert).toBeHidden({ timeout: 15_000 });
	await expect(page.getByRole("status").filter({ hasText: /^Recording$/ })).toBeVisible();

	const again = "/get/again?seed=9&size=2000000&framing=length";
	await small.fetch(origin.url("https", again));
	await page.getByRole("row").filter({ hasText: "/get/again" }).click();
	await expect(page.getByText(/captured to byte/)).toHaveCount(0);
	await expect(async () => {
		const [session] = await small.sessions("/get/again");
		expect(session).toMatchObject({ state: "done", response_bytes: 2_000_000, flags: [] });
	}).toPass({ timeout: 10_000 });
});

/** The SHA-256 of what curl gets. */
function sha256(args: string[]): Promise<string> {
	return new Promise((resolve, reject) => {
		const hash = createHash("sha256");
		const curl = execFile("curl", ["--silent", "--show-error", "--fail", ...args], { encoding: "buffer", maxBuffer: 64 * 1024 * 1024 }, (error) =>
			error ? reject(error) : resolve(hash.digest("hex")),
		);
		curl.stdout?.on("data", (data: Buffer) => hash.update(data));
	});
}
