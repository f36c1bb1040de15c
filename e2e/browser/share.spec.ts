import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "./fixtures.ts";

test("a share shows one session in another browser, and dies when it is revoked", async ({ browser, dashboard, device, millpond, origin }) => {
	await device.goto(origin.url("https", "/put/a-page-to-fetch-from"));
	for (const path of ["/get/other?seed=1&size=500", "/get/kept?seed=2&size=300000"])
		await device.evaluate(async (address) => (await fetch(address)).arrayBuffer(), origin.url("https", path));
	await dashboard.getByRole("row").filter({ hasText: "/get/kept" }).click();
	await dashboard.getByRole("button", { name: "Share", exact: true }).click();
	await dashboard.getByRole("button", { name: "Make a link" }).click();
	const link = await dashboard.getByRole("textbox", { name: "The link" }).inputValue();

	const guest = await (await browser.newContext()).newPage();
	await guest.goto(link);
	await expect(guest.getByText("/get/kept").first()).toBeVisible();
	await guest.getByRole("tab", { name: "Response" }).click();
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

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
