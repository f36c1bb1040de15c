// How a device joins: the page that the proxy itself serves, its check, and what the dashboard says of it.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, chromium, type Page } from "@playwright/test";
import jsQR from "jsqr";
import { expect, test } from "./fixtures.ts";
import { bin, launch } from "./processes.ts";

const page = "http://millpond.internal/";
const phone = { viewport: { width: 375, height: 812 }, userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1" };

test("a device that trusts the certificate is told so, and nothing of it is a session", async ({ device, millpond }) => {
	await device.goto(page);
	await expect(device.getByText("It goes through the proxy.")).toBeVisible();
	await expect(device.getByText("It trusts the certificate. It is ready.")).toBeVisible();
	await device.goto(page.replace("http:", "https:"));
	await expect(device.getByText("It goes through the proxy.")).toBeVisible();
	await expect(device.getByText("It trusts the certificate. It is ready.")).toBeVisible();
	expect(await millpond.sessions("millpond.internal")).toEqual([]);
});

test("a device that reads the page past its proxy is told that the proxy is set", async ({ launchOptions, millpond }) => {
	// Browsers, and phones' settings, leave addresses of the own network out.
	const browser = await chromium.launch({ ...launchOptions, proxy: { server: `http://${millpond.proxy}`, bypass: "127.0.0.1" } });
	const device = await browser.newPage();
	await device.goto(`http://${millpond.proxy}/`);
	await expect(device.getByText("It goes through the proxy.")).toBeVisible();
	await expect(device.getByText("It does not trust the certificate yet.")).toBeVisible();
	expect(await millpond.sessions("millpond.internal")).toEqual([]);
	await browser.close();
});

test("a device that does not trust the certificate is told so; that is no session, but what it fetches is one that says why", async ({ launchOptions, millpond, origin }) => {
	const browser = await chromium.launch({ ...launchOptions, proxy: { server: `http://${millpond.proxy}`, bypass: "<-loopback>" } });
	const device = await browser.newPage();
	await device.goto(page);
	await expect(device.getByText("It does not trust the certificate yet.")).toBeVisible();
	await expect(device.getByText("It goes through the proxy.")).toBeVisible();
	await device.getByRole("button", { name: "Look again" }).click();
	await expect(device.getByText("It does not trust the certificate yet.")).toBeVisible();
	expect(await millpond.sessions("millpond.internal")).toEqual([]);

	const url = origin.url("https", "/put/rejected");
	await expect(device.goto(url)).rejects.toThrow("ERR_CERT_AUTHORITY_INVALID");
	await expect(async () => {
		const [row] = await millpond.sessions(new URL(url).host);
		expect(row).toMatchObject({ state: "failed", error: expect.stringContaining("(certificate_unknown): the authority is most likely not installed") });
	}).toPass({ timeout: 10_000 });
	await browser.close();
});

test("a device whose proxy is not set yet reads the page at the proxy's address", async ({ page: device, millpond }) => {
	await device.goto(`http://${millpond.proxy}/`);
	await expect(device.getByText("It does not go through the proxy yet")).toBeVisible({ timeout: 15_000 });
	await expect(device.getByText(`curl --proxy "http://${millpond.proxy}"`)).toBeHidden();
	await device.getByText("curl", { exact: true }).click();
	await expect(device.getByText(`curl --proxy "http://${millpond.proxy}"`)).toBeVisible();
	expect(await millpond.sessions("")).toEqual([]);
});

for (const theme of ["light", "dark"] as const) {
	test(`the page fits a phone and needs no script, ${theme}`, async ({ deviceContext, millpond }, info) => {
		const device = await browserOf(deviceContext.browser()).newPage({ ...phone, colorScheme: theme, javaScriptEnabled: false });
		await device.goto(page);
		for (const picture of await device.locator("noscript img").all()) {
			await expect(picture).toBeVisible();
			expect(await picture.evaluate((img: HTMLImageElement) => img.naturalWidth)).toBeGreaterThan(0);
		}
		await expect(device.getByText("Certificate Trust Settings")).toBeVisible(); // the device's own steps are open
		await expect(device.getByText("network_security_config.xml")).toBeHidden();
		for (const steps of await device.locator("summary").all()) await steps.click();
		expect(await device.evaluate(() => document.documentElement.scrollWidth)).toBe(phone.viewport.width);
		const [ground, ink] = await device.evaluate(() => {
			const { backgroundColor, color } = getComputedStyle(document.body);
			return [backgroundColor, color].map((c) => Number(/\d+/.exec(c)?.[0]));
		});
		expect((ground ?? 0) > (ink ?? 0)).toBe(theme === "light");
		await info.attach(`phone-${theme}.png`, { body: await device.screenshot({ fullPage: true }), contentType: "image/png" });
		expect(await millpond.sessions("millpond.internal")).toEqual([]);
	});
}

function browserOf(browser: Browser | null): Browser {
	if (!browser) throw new Error("the context has no browser of its own");
	return browser;
}

test("a command is copied as it stands", async ({ deviceContext, device, millpond }) => {
	await deviceContext.grantPermissions(["clipboard-read", "clipboard-write"]);
	await device.goto(page);
	await device.locator("#go summary").click();
	await device.locator("#go pre button").click();
	await expect(device.locator("#go pre button")).toHaveText("Copied");
	const proxy = `"http://${millpond.proxy}"`;
	await device.evaluate(() => {
		const field = document.createElement("textarea");
		field.id = "pasted";
		document.body.append(field);
		field.focus();
	});
	await device.keyboard.press("ControlOrMeta+V");
	await expect(device.locator("#pasted")).toHaveValue(`SSL_CERT_FILE=millpond-ca.pem HTTP_PROXY=${proxy} HTTPS_PROXY=${proxy} ./program`);
});

test("the dashboard says that phones cannot reach a proxy on loopback, and what to do", async ({ dashboard, millpond }) => {
	await dashboard.getByRole("button", { name: "Connect a device" }).click();
	const dialog = dashboard.getByRole("dialog", { name: "Connect a device" });
	await expect(dialog).toContainText("Phones and other machines cannot reach the proxy");
	await expect(dialog).toContainText(`--proxy 0.0.0.0:${millpond.proxy.split(":")[1]} --proxy-auth USER:PASSWORD`);
	await expect(dialog.getByRole("img", { name: /^QR code/ })).toHaveCount(0);
	await expect(dialog.getByRole("link", { name: `http://${millpond.proxy}/` })).toBeVisible();
});

test("the dashboard replaces the authority after a question, and the device sees that at once", async ({ dashboard, device }) => {
	await device.goto(page);
	await expect(device.getByText("It trusts the certificate. It is ready.")).toBeVisible();
	const old = await device.locator(".print").textContent();

	await dashboard.getByRole("button", { name: "Connect a device" }).click();
	await expect(dashboard.getByRole("dialog")).toContainText(old ?? "the fingerprint");
	await dashboard.getByRole("button", { name: "Replace it…" }).click();
	const question = dashboard.getByRole("dialog", { name: "Replace the certificate authority?" });
	await expect(question).toContainText("Every device and program that trusts the present one stops working");
	await question.getByRole("button", { name: "Keep it" }).click();
	await expect(dashboard.getByRole("dialog", { name: "Connect a device" })).toContainText(old ?? "the fingerprint");

	await dashboard.getByRole("button", { name: "Replace it…" }).click();
	await question.getByRole("button", { name: "Replace it" }).click();
	const told = dashboard.getByRole("dialog", { name: "A new authority is in force" });
	await expect(told).toContainText("replaced-");
	await device.reload();
	await expect(device.getByText("It does not trust the certificate yet.")).toBeVisible();
	const now = await device.locator(".print").textContent();
	expect(now).not.toBe(old);
	await expect(told).toContainText(now ?? "the fingerprint");
});

test("a proxy that devices reach has a QR code for each of its addresses", async ({ page: dashboard }) => {
	const dir = mkdtempSync(join(tmpdir(), "millpond-data-"));
	const running = await launch(["dashboard", "proxy", "ca"], bin("millpond"), "--data", dir, "--dashboard", "127.0.0.1:0", "--proxy", "0.0.0.0:0", "--proxy-auth", "me:secret");
	try {
		await dashboard.goto(running.said.dashboard ?? "");
		await dashboard.getByRole("button", { name: "Connect a device" }).click();
		const answer = await dashboard.request.get(new URL("/api/status", running.said.dashboard).href);
		const { addresses } = (await answer.json()) as { addresses: string[] };
		test.skip(addresses.length === 0, "this machine has no address but loopback");
		const dialog = dashboard.getByRole("dialog", { name: "Connect a device" });
		for (const address of addresses) {
			if (addresses.length > 1) await dialog.getByRole("combobox").selectOption(address);
			const code = dialog.getByRole("img", { name: `QR code of http://${address}/` });
			expect(await readQrCode(dashboard, await code.screenshot())).toBe(`http://${address}/`);
			await expect(dialog.getByRole("link", { name: `http://${address}/` })).toBeVisible();
		}
		await expect(dialog).toContainText("with the user name and password of --proxy-auth");
	} finally {
		await running.stop();
		rmSync(dir, { recursive: true });
	}
});

/** What a camera reads of a picture: a browser turns it into points. */
async function readQrCode(reader: Page, png: Buffer) {
	const { points, width, height } = await reader.evaluate(async (base64) => {
		const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
		const picture = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
		const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
		context?.drawImage(picture, 0, 0);
		return { points: [...(context?.getImageData(0, 0, picture.width, picture.height).data ?? [])], width: picture.width, height: picture.height };
	}, png.toString("base64"));
	return jsQR.default(Uint8ClampedArray.from(points), width, height)?.data;
}
