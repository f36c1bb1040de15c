import { defineConfig } from "@playwright/test";

export default defineConfig({
	testDir: "browser",
	outputDir: "results/browser",
	globalSetup: "./browser/build.ts",
	// A test waits as much as it works.
	workers: 2,
	fullyParallel: true,
	timeout: 60_000,
	forbidOnly: Boolean(process.env.CI),
	reporter: [["list"], ["json", { outputFile: process.env.PLAYWRIGHT_JSON_OUTPUT_FILE ?? "results/browser.json" }]],
	use: {
		trace: "off",
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
