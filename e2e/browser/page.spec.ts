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
