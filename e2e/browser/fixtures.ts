// What every browser test starts with: an origin, Millpond, and two browsers, one behind the proxy and one for the dashboard.

import { createHash, X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as base, type BrowserContext, chromium, type Page } from "@playwright/test";
import { bin, launch } from "./processes.ts";

/** A protocol of the origin. */
export type Protocol = "http" | "https" | "http2";

export interface Origin {
	/** The address of a path at the origin. */
	url: (protocol: Protocol, path: string) => string;
	ca: string;
}

/** What the API tells of a session in a list, as far as the tests look. */
export interface Summary {
	id: number;
	state: string;
	path: string;
	protocol: string;
	status: number;
	request_bytes: number;
	response_bytes: number;
}

export interface Millpond {
	dashboard: string;
	token: string;
	proxy: string;
	ca: string;
	/** Calls the API with the token. */
	call: (path: string, init?: RequestInit) => Promise<Response>;
	/** All sessions whose text holds the filter, newest first. */
	sessions: (filter: string) => Promise<Summary[]>;
}

interface TestFixtures {
	millpond: Millpond;
	/** A page of a browser that goes through the proxy and trusts Millpond's certificate. */
	device: Page;
	/** The context of that browser. */
	deviceContext: BrowserContext;
	/** The dashboard, opened by the link that Millpond prints. */
	dashboard: Page;
}

export const test = base.extend<TestFixtures, { origin: Origin }>({
	origin: [
		// eslint-disable-next-line no-empty-pattern
		async ({}, use) => {
			const dir = mkdtempSync(join(tmpdir(), "millpond-origin-"));
			const running = await launch(["http", "https", "http2", "ca"], bin("origin"), dir);
			await use({
				url: (protocol, path) => `${protocol === "http" ? "http" : "https"}://${running.said[protocol]}${path}`,
				ca: running.said.ca ?? "",
			});
			await running.stop();
			rmSync(dir, { recursive: true });
		},
		{ scope: "worker" },
	],

	millpond: async ({ origin }, use, info) => {
		const dir = mkdtempSync(join(tmpdir(), "millpond-data-"));
		const free = "127.0.0.1:0";
		const args = ["--data", dir, "--proxy", free, "--dashboard", free, "--upstream-ca", origin.ca];
		const running = await launch(["dashboard", "proxy", "ca"], bin("millpond"), ...args);
		const address = new URL(running.said.dashboard ?? "");
		const token = address.hash.slice("#token=".length);
		const call = (path: string, init: RequestInit = {}) =>
			fetch(address.origin + path, { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } });
		await use({
			dashboard: running.said.dashboard ?? "",
			token,
			proxy: running.said.proxy ?? "",
			ca: running.said.ca ?? "",
			call,
			sessions: async (filter) => {
				const res = await call(`/api/sessions?limit=500&filter=${encodeURIComponent(filter)}`);
				return ((await res.json()) as { sessions: Summary[] }).sessions;
			},
		});
		await running.stop();
		if (info.status !== info.expectedStatus) await info.attach("millpond.log", { body: running.log() });
		rmSync(dir, { recursive: true });
	},

	// A browser of its own: which authority to trust is said when it starts.
	deviceContext: async ({ millpond, launchOptions }, use) => {
		const authority = new X509Certificate(readFileSync(millpond.ca));
		const key = authority.publicKey.export({ type: "spki", format: "der" });
		const pin = createHash("sha256").update(key).digest("base64");
		const browser = await chromium.launch({
			...launchOptions,
			args: [...(launchOptions.args ?? []), `--ignore-certificate-errors-spki-list=${pin}`],
			proxy: { server: `http://${millpond.proxy}`, bypass: "<-loopback>" },
		});
		await use(await browser.newContext());
		await browser.close();
	},

	device: async ({ deviceContext }, use) => {
		await use(await deviceContext.newPage());
	},

	dashboard: async ({ page, millpond }, use) => {
		await page.goto(millpond.dashboard);
		await use(page);
	},
});

export { expect } from "@playwright/test";
