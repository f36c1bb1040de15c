import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";

test("a share shows one session in another browser, and dies when it is revoked", async ({ browser, dashboard, device, millpond, origin }) => {
	await device.goto(origin.url("https", "/put/a-page-to-fetch-from"));
	for (const path of ["/get/other?seed=1&size=500", "/get/kept?seed=2&size=300000"])
		await device.evaluate(async (address) => (await fetch(address)).arrayBuffer(), origin.url("https", path));
	await dashboard.getByRole("row").filter({ hasText: "/get/kept" }).click();
	await dashboard.getByRole("tab", { name: "Response" }).click();
	await expectToFit(dashboard);
	await dashboard.getByRole("button", { name: "Share", exact: true }).click();
	await dashboard.getByRole("button", { name: "Make a link" }).click();
	const link = await dashboard.getByRole("textbox", { name: "The link" }).inputValue();

	const guest = await (await browser.newContext()).newPage();
	await guest.goto(link);
	await expect(guest.getByText("/get/kept").first()).toBeVisible();
	await guest.getByRole("tab", { name: "Response" }).click();
	await expectToFit(guest);
	const begun = guest.waitForEvent("download");
	await guest.getByRole("link", { name: "Download" }).click();
	const file = readFileSync(await (await begun).path());
	const [kept] = await millpond.sessions("/get/kept");
	const [other] = await millpond.sessions("/get/other");
	const wire = await (await millpond.call(`/api/sessions/${kept?.id}/response/body`)).arrayBuffer();
	expect(file.length).toBe(300_000);
	expect(sha256(file)).toBe(sha256(new Uint8Array(wire)));

	// What the share does not name is not there, whichever way the guest asks.
	const share = new URL(link).pathname.split("/").at(-1);
	const token = new URL(link).hash.slice("#token=".length);
	const asks = [
		"/api/sessions",
		`/api/sessions/${kept?.id}`,
		`/api/sessions/${other?.id}/response/body`,
		"/api/status",
		"/api/shares",
		`/api/shared/${share}/sessions`,
		`/api/shared/${share}/sessions/${other?.id}`,
		`/api/shared/${share}/sessions/${other?.id}/response/body`,
	];
	for (const path of asks) {
		const status = await guest.evaluate(
			async ([address, bearer]) => (await fetch(address ?? "", { headers: { Authorization: `Bearer ${bearer}` } })).status,
			[path, token],
		);
		expect([401, 403, 404], path).toContain(status);
	}

	await dashboard.getByRole("button", { name: /^Revoke the link/ }).click();
	await expect(guest.getByText("There is nothing here")).toBeVisible({ timeout: 15_000 });
	await guest.goto(link);
	await guest.reload();
	await expect(guest.getByText("There is nothing here")).toBeVisible();
	await guest.context().close();
});

test("a share that expires while its page is open says so", async ({ browser, device, millpond, origin }) => {
	await device.goto(origin.url("https", "/json/brief"));
	const [session] = await millpond.sessions("/json/brief");
	const guest = await (await browser.newContext()).newPage();
	const made = await millpond.call("/api/shares", {
		method: "POST",
		headers: { "Content-Type": "application/json" },
		body: JSON.stringify({ session: session?.id, expires_in: 10 }), // seconds: enough to open the page on a busy machine
	});
	expect(made.status).toBe(200);
	const { url } = (await made.json()) as { url: string };

	await guest.goto(url);
	await expect(guest.getByText("/json/brief").first()).toBeVisible();
	await expect(guest.getByText("There is nothing here")).toBeVisible({ timeout: 20_000 });
	await expect(guest.getByRole("alert")).toContainText("expired");
	await expect(guest.getByText("/json/brief")).toHaveCount(0);
	await guest.context().close();
});

test("the page of a share whose session is deleted says so and no more, at once and when it is opened", async ({ browser, device, millpond, origin }) => {
	await device.goto(origin.url("https", "/json/gone"));
	const [session] = await millpond.sessions("/json/gone");
	const made = await millpond.call("/api/shares", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ session: session?.id }) });
	const { url } = (await made.json()) as { url: string };
	const guest = await (await browser.newContext()).newPage();
	await guest.goto(url);
	await expect(guest.getByText("/json/gone").first()).toBeVisible();
	await millpond.call(`/api/sessions/${session?.id}`, { method: "DELETE" });
	for (const when of ["open", "opened"]) {
		await expect(guest.getByRole("heading", { name: "This session was deleted" }), when).toBeVisible();
		await expect(guest.getByText(/The link works until/), when).toHaveCount(0);
		await expect(guest.getByRole("tab"), when).toHaveCount(0);
		await guest.reload();
	}
	await guest.context().close();
});

/** Expects that a page with a body shown is no wider than its window, narrow or wide. The body's hash is its longest word. */
async function expectToFit(page: Page) {
	const before = page.viewportSize();
	await expect(page.getByText(/^sha256 [0-9a-f]{64}$/)).toBeVisible();
	for (const width of [400, 1024]) {
		await page.setViewportSize({ width, height: 800 });
		const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
		expect(content, `the page at ${width} px`).toBeLessThanOrEqual(window ?? 0);
	}
	if (before) await page.setViewportSize(before);
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
