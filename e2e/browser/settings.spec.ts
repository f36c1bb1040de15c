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
		await expect(dialog.getByRole("alert")).toContainText('the scheme "ftp" is not one of');
		await expect(dialog.getByRole("alert")).toBeInViewport();
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
