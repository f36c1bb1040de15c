// What is set about hosts: from a session, and in the dialog.

import { execFileSync } from "node:child_process";
import { expect, type Millpond, test } from "./fixtures.ts";

/** Fetches through the proxy by a client that trusts everything, on a connection of its own. */
function fetchOnce(millpond: Millpond, url: string): string {
	return execFileSync("curl", ["-sS", "-k", "--proxy", `http://${millpond.proxy}`, url], { encoding: "utf8", env: { ...process.env, no_proxy: "", NO_PROXY: "" } });
}

test("a session's host is passed through unread from then on, and read again", async ({ dashboard, millpond, origin }) => {
	const url = origin.url("https", "/json/a?count=1");
	const grid = dashboard.getByRole("grid", { name: "Sessions" });
	fetchOnce(millpond, url);
	await grid.locator("[id^=session-]").first().click();
	await dashboard.keyboard.press("Enter");
	await dashboard.getByRole("button", { name: "Pass this host through unread" }).click();
	await expect(dashboard.getByText("New connections to it pass unread.")).toBeVisible();
	fetchOnce(millpond, url);
	await expect.poll(async () => (await millpond.sessions("")).map((s) => s.path)).toEqual(["", "/json/a?count=1"]); // a tunnel has no path
	await dashboard.getByRole("button", { name: "Read it again" }).click();
	await expect(dashboard.getByRole("button", { name: "Pass this host through unread" })).toBeVisible();
	fetchOnce(millpond, url);
	await expect.poll(async () => (await millpond.sessions("")).filter((s) => s.path === "/json/a?count=1").length).toBe(2);
});

test("of a client that rejects Millpond's certificate, upstream's is not offered to be accepted; what passed unread is not offered to", async ({ dashboard, millpond, origin }) => {
	const url = origin.url("https", "/json/a?count=1");
	const untrusting = () => execFileSync("curl", ["-sS", "-k", "--pinnedpubkey", `sha256//${"A".repeat(43)}=`, "--proxy", `http://${millpond.proxy}`, url], { stdio: "pipe", env: { ...process.env, no_proxy: "", NO_PROXY: "" } });
	expect(untrusting).toThrow();
	const grid = dashboard.getByRole("grid", { name: "Sessions" });
	await grid.locator("[id^=session-]").first().click();
	await expect(dashboard.getByRole("button", { name: "Pass this host through unread" })).toBeVisible();
	await expect(dashboard.getByRole("button", { name: "Accept its certificate" })).toHaveCount(0);

	await millpond.call("/api/settings", { method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ passthrough: ["127.0.0.0/8"] }) });
	fetchOnce(millpond, url);
	await grid.locator("[id^=session-]").nth(1).click();
	await expect(dashboard.getByText("It was passed through unread.")).toBeVisible();
	await expect(dashboard.getByRole("button", { name: "Pass this host through unread" })).toHaveCount(0);
});

for (const [theme, width] of [["light", 1200], ["dark", 1200], ["light", 375], ["dark", 375]] as const) {
	test(`the dialog sets and takes away, ${theme}, ${width} wide`, async ({ dashboard, millpond }, info) => {
		await dashboard.emulateMedia({ colorScheme: theme });
		await dashboard.setViewportSize({ width, height: 800 });
		await dashboard.getByRole("button", { name: "Settings" }).click();
		const dialog = dashboard.getByRole("dialog", { name: "Settings" });
		const unread = dialog.getByRole("region", { name: "Pass through unread" });
		await unread.getByLabel("Host").fill("*.bank.example");
		await dashboard.keyboard.press("Enter");
		await expect(unread.getByText("*.bank.example")).toBeVisible();
		await expect(unread.getByLabel("Host")).toHaveValue("");

		const oldest = dialog.getByRole("region", { name: "Oldest TLS" });
		await oldest.getByLabel("Host").fill("old.example");
		await oldest.getByRole("button", { name: "Add" }).click();
		await expect(oldest.getByRole("listitem").getByText("TLS 1.0")).toBeVisible();

		const proxy = dialog.getByRole("region", { name: "Upstream proxy" });
		await proxy.getByLabel("URL of the proxy").fill("ftp://nobody");
		await proxy.getByRole("button", { name: "Set" }).click();
		await expect(proxy.getByRole("alert")).toContainText('the scheme "ftp" is not one of'); // at the field
		await expect(proxy.getByRole("alert")).toBeInViewport();
		await expect(dashboard.getByRole("alert")).toHaveCount(1);
		await proxy.getByLabel("URL of the proxy").fill("socks5://ann:secret@127.0.0.1:1");
		await proxy.getByRole("button", { name: "Set" }).click();
		await expect(proxy.getByText("with a password")).toBeVisible();
		await expect(dialog).not.toContainText("secret");

		expect(await dialog.evaluate((element) => element.scrollWidth - element.clientWidth)).toBeLessThanOrEqual(0);
		await info.attach(`settings-${theme}-${width}.png`, { body: await dashboard.screenshot(), contentType: "image/png" });

		await unread.getByRole("button", { name: "Remove *.bank.example" }).click();
		await expect(unread.getByText("*.bank.example")).toHaveCount(0);
		const set = (await (await millpond.call("/api/settings")).json()) as { passthrough: unknown[]; upstream_proxy: object };
		expect(set.passthrough).toEqual([]);
		expect(set.upstream_proxy).toEqual({ url: "socks5://ann@127.0.0.1:1", has_password: true, from: "dashboard" });
	});
}
