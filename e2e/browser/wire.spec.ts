import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { expect, test } from "./fixtures.ts";

test("the overview shows the connection, its certificates, and what HTTP/2 frames said", async ({ dashboard, device, origin }) => {
	await device.goto(origin.url("http2", "/json/frames"));
	await device.evaluate(async () => {
		const leave = new AbortController();
		const answer = await fetch("/get/left?seed=1&size=100000000", { signal: leave.signal });
		await answer.body?.getReader().read();
		leave.abort();
	});
	const rows = dashboard.getByRole("row");

	await rows.filter({ hasText: "/json/frames" }).click();
	const inspector = dashboard.getByRole("tabpanel");
	const time = inspector.getByRole("table").first();
	for (const phase of ["Connect", "TLS with upstream", "TLS with client", "Send request", "Wait for response", "Receive"]) {
		await expect(time.getByRole("rowheader", { name: phase, exact: true })).toBeVisible();
	}
	await expect(inspector).toContainText(/JA4\)t13[di]\d{4}h2_[0-9a-f]{12}_[0-9a-f]{12}/);
	await expect(inspector.getByText("INITIAL_WINDOW_SIZE").first()).toBeVisible();
	await inspector.getByText("Upstream's certificates").click();
	const certificate = inspector.getByRole("region", { name: "Certificate 1" });
	await expect(certificate).toContainText("127.0.0.1");
	const saving = dashboard.waitForEvent("download");
	await certificate.getByRole("button", { name: "Download certificate 1 as PEM" }).click();
	const saved = new X509Certificate(readFileSync(await (await saving).path()));
	await expect(certificate).toContainText(saved.fingerprint256.replaceAll(":", "").toLowerCase());

	await rows.filter({ hasText: "/get/left" }).click();
	await expect(inspector.getByText("CANCEL (8), by the client")).toBeVisible();
	await expect(time.getByRole("rowheader", { name: "Connect", exact: true })).toHaveCount(0);
	await expect(inspector.getByText("a connection that had served before")).toBeVisible();
});

test("the overview shows chunk extensions", async ({ dashboard, device, origin }) => {
	await device.goto(origin.url("http", "/json/page"));
	await device.evaluate(async () => (await fetch("/get/odd?seed=1&size=5000&framing=odd")).arrayBuffer());
	await dashboard.getByRole("row").filter({ hasText: "/get/odd" }).click();
	const table = dashboard.getByRole("tabpanel").getByRole("table").nth(1);
	await expect(table.getByRole("cell", { name: /^;/ }).first()).toBeVisible();
	await expect(dashboard.getByRole("tabpanel")).toContainText("chunked");
});
