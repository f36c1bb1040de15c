import { expect, type Protocol, test } from "./fixtures.ts";

const resources = 200;
const resourceSize = (i: number) => 300 + i * 997;
const spoken: Record<Protocol, string> = { http: "HTTP/1.1", https: "HTTP/1.1", http2: "HTTP/2" };

for (const protocol of ["http", "https", "http2"] as const) {
	test(`a page of ${resources} resources over ${protocol} is complete, and each is one row`, async ({ device, millpond, origin }) => {
		await device.goto(origin.url(protocol, `/page/${protocol}`));
		await device.waitForFunction((n) => Number(Reflect.get(window, "loaded")) + Number(Reflect.get(window, "broken")) === n, resources);
		expect(await device.evaluate(() => Reflect.get(window, "broken"))).toBe(0);

		const prefix = `/page/${protocol}/`;
		await expect(async () => {
			const rows = (await millpond.sessions(prefix)).filter((row) => row.path.startsWith(prefix));
			const got = rows.map((row) => [row.path, row.state, row.status, row.protocol, row.response_bytes]).sort();
			const want = Array.from({ length: resources }, (_, i) => [`${prefix}${i}`, "done", 200, spoken[protocol], resourceSize(i)]).sort();
			expect(got).toEqual(want);
		}).toPass({ timeout: 10_000 });
	});
}

test("a page loaded through the proxy appears in the dashboard", async ({ dashboard, device, origin }) => {
	await device.goto(origin.url("http2", "/page/appears"));
	await expect(dashboard.getByText("/page/appears", { exact: false }).first()).toBeVisible();
});

test("keys work from the start: a session is selected, opened, and deleted after a question", async ({ dashboard, device, origin }) => {
	for (const path of ["/put/kept", "/put/deleted"]) await device.goto(origin.url("https", path));
	const rows = dashboard.getByRole("row");
	await expect(rows.filter({ hasText: "/put/deleted" })).toBeVisible();
	const list = dashboard.getByRole("grid", { name: "Sessions" });
	await expect(list).toBeFocused();
	await dashboard.keyboard.press("End");
	await dashboard.keyboard.press("ArrowUp");
	await dashboard.keyboard.press("Enter");
	const remove = dashboard.getByRole("button", { name: /^Delete session/ });
	await remove.click();
	const question = dashboard.getByRole("dialog", { name: /^Delete session \d+\?$/ });
	await expect(question).toBeVisible();
	await dashboard.keyboard.press("Escape");
	await expect(question).toBeHidden();
	await expect(remove).toBeFocused();

	await rows.filter({ hasText: "/put/deleted" }).click();
	// Del asks wherever the focus is, and Enter agrees.
	await dashboard.getByRole("tab", { name: "Response" }).click();
	await dashboard.keyboard.press("Delete");
	await expect(question).toContainText("/put/deleted");
	await dashboard.keyboard.press("Enter");
	await expect(question).toBeHidden();
	await expect(rows.filter({ hasText: "/put/deleted" })).toHaveCount(0);
	await expect(rows.filter({ hasText: "/put/kept" })).toBeVisible();
	await expect(list).toBeFocused();
});
