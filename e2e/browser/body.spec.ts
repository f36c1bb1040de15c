import { createHash, X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import type { Locator, Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";

test("a gzip-coded JSON response is shown decoded and indented, and downloads as it passed or decoded", async ({
	dashboard,
	device,
	millpond,
	origin,
}) => {
	await device.goto(origin.url("https", "/json/coded"));
	await dashboard.getByRole("row").filter({ hasText: "/json/coded" }).click();
	await dashboard.getByRole("tab", { name: "Response" }).click();

	const text = dashboard.getByRole("region", { name: "Text of the body" });
	await expect(text.getByText('"name": "coded",')).toBeVisible();
	await expect(text.getByText('"numbers": [')).toBeVisible();
	await dashboard.getByRole("button", { name: "As sent" }).click();
	await expect(text.getByText('{"name":"coded","numbers":[0,1,2,')).toBeVisible();

	const decoded = await download(dashboard, dashboard.getByRole("link", { name: "Download decoded" }));
	const wire = await download(dashboard, dashboard.getByRole("link", { name: "Download as it passed, gzip" }));
	const sent = `${JSON.stringify({ name: "coded", numbers: Array.from({ length: 100 }, (_, i) => i) })}\n`;
	expect(sha256(decoded)).toBe(sha256(Buffer.from(sent)));

	const [session] = await millpond.sessions("/json/coded");
	expect(wire.length).toBe(session?.response_bytes);
	expect(gunzipSync(wire).equals(decoded)).toBe(true);
	// The program's own digest of the bytes that passed, made apart from the download.
	await expect(async () => {
		const known = (await (await millpond.call(`/api/sessions/${session?.id}`)).json()) as { response: { body: { sha256?: string } } };
		expect(known.response.body.sha256).toBe(sha256(wire));
	}).toPass({ timeout: 10_000 });
});

test("JSON of 3 MB and of 20 MB on one line is shown", async ({ dashboard, device, origin }) => {
	await device.goto(origin.url("https", "/put/a-page-to-fetch-from"));
	for (const count of [430_000, 2_600_000]) {
		const name = `large-${count}`;
		await device.evaluate((from) => fetch(from).then((r) => r.arrayBuffer()), origin.url("https", `/json/${name}?count=${count}`));
		await dashboard.getByRole("row").filter({ hasText: name }).click();
		await dashboard.getByRole("tab", { name: "Response" }).click();
		const text = dashboard.getByRole("region", { name: "Text of the body" });
		await expect(text.getByText(`{"name":"${name}","numbers":[0,1,2,`)).toBeVisible();
	}
});

test("the first screen of 46 MB asks for what it shows, and no more", async ({ dashboard, device, origin }) => {
	await device.goto(origin.url("https", "/put/a-page-to-fetch-from"));
	await device.evaluate((from) => fetch(from).then((r) => r.arrayBuffer()), origin.url("https", "/get/large?seed=9&size=46000000&framing=length"));
	const parts: string[] = [];
	dashboard.on("response", (res) => {
		if (res.url().includes("/response/body")) parts.push(res.headers()["content-length"] ?? "no end");
	});
	await dashboard.getByRole("row").filter({ hasText: "/get/large" }).click();
	await dashboard.getByRole("tab", { name: "Response" }).click();
	await expect(dashboard.getByRole("region", { name: "Bytes of the body" })).toBeVisible();
	await expect(dashboard.getByRole("region", { name: "Bytes of the body" })).toContainText("00 00 00 00");
	expect(parts.length).toBeGreaterThan(0);
	expect(parts.reduce((sum, part) => sum + Number(part), 0), parts.join(", ")).toBeLessThan(2 << 20);
});

test("the certificate is downloaded as PEM and as DER", async ({ dashboard, millpond }) => {
	const file = readFileSync(millpond.ca);
	await dashboard.getByRole("button", { name: "Connect a device" }).click();
	const dialog = dashboard.getByRole("dialog", { name: "Connect a device" });
	const pem = await download(dashboard, dialog.getByRole("link", { name: "PEM" }));
	expect(pem.equals(file)).toBe(true);
	const der = await download(dashboard, dialog.getByRole("link", { name: "DER" }));
	expect(der.equals(new X509Certificate(file).raw)).toBe(true);
});

/** The bytes that a click on the link saves. */
async function download(page: Page, link: Locator): Promise<Buffer> {
	const begun = page.waitForEvent("download");
	await link.click();
	return readFileSync(await (await begun).path());
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
