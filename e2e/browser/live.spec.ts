import { expect, type Millpond, test } from "./fixtures.ts";

test("a body that is still coming is shown in hex, and grows", async ({ dashboard, device, origin, millpond }) => {
	await device.goto(origin.url("https", "/put/a-page-to-fetch-from"));
	const slow = origin.url("https", "/get/slow?seed=7&size=10000000&framing=length&pace=2000,100ms");
	// What is asked for is left to come while the dashboard is looked at.
	await device.evaluate((address) => void fetch(address).then((r) => r.blob()), slow);

	const row = dashboard.getByRole("row").filter({ hasText: "/get/slow" });
	await row.click();
	await dashboard.getByRole("tab", { name: "Response" }).click();
	await dashboard.getByRole("button", { name: "Hex" }).click();

	const bytes = dashboard.getByRole("region", { name: "Bytes of the body" });
	const first = await firstBytes(millpond, 16);
	await expect(bytes).toContainText(first);

	const counted = dashboard.getByText(/of [\d,. ]+ so far/);
	const before = await numberIn(counted);
	await expect(async () => expect(await numberIn(counted)).toBeGreaterThan(before)).toPass();

	const listed = row.getByRole("gridcell", { includeHidden: true }).nth(6);
	const listedBefore = await listed.textContent();
	await expect(listed).not.toHaveText(listedBefore ?? "");
});

async function numberIn(text: { textContent: () => Promise<string | null> }): Promise<number> {
	return Number((await text.textContent())?.replace(/\D/g, ""));
}

/** The first bytes of the body as the API gives them, as hex view writes them. */
async function firstBytes(millpond: Millpond, n: number) {
	const [session] = await millpond.sessions("/get/slow");
	const res = await millpond.call(`/api/sessions/${session?.id}/response/body`, { headers: { Range: `bytes=0-${n - 1}` } });
	expect(res.status).toBe(206);
	return new RegExp([...new Uint8Array(await res.arrayBuffer())].map((b) => b.toString(16).padStart(2, "0")).join("\\s*"), "i");
}
