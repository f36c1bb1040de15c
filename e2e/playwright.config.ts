import { defineConfig } from "@playwright/test";

export default defineConfig({
	testDir: "browser",
	outputDir: "results/browser",
	globalSetup: "./browser/build.ts",
	// Two cores are shared by a browser, a proxy and an origin.
	workers: 1,
	timeout: 60_000,
	forbidOnly: Boolean(process.env.CI),
	reporter: [["list"], ["json", { outputFile: process.env.PLAYWRIGHT_JSON_OUTPUT_FILE ?? "results/browser.json" }]],
	use: {
		trace: "retain-on-failure",
		screenshot: "only-on-failure",
		launchOptions: {
			executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
			args: [
				"--no-sandbox",
				"--disable-quic",
				"--no-first-run",
				"--disable-background-networking",
				"--disable-component-update",
				"--disable-sync",
			],
		},
	},
});
