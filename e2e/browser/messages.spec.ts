import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";

/** Opens a WebSocket in the page, which keeps it, and sends messages one after the other's echo. */
async function talk(device: Page, address: string, messages: string[]): Promise<string[]> {
	return device.evaluate(
		async ([url, all]) => {
			const holder = window as unknown as { socket?: WebSocket };
			const echoes: string[] = [];
			const socket = holder.socket ?? new WebSocket(url as string);
			if (socket.readyState !== WebSocket.OPEN) await new Promise((resolve) => socket.addEventListener("open", resolve));
			holder.socket = socket;
			for (const message of all as string[]) {
				const echo = new Promise<string>((resolve) => socket.addEventListener("message", (event) => resolve(String(event.data)), { once: true }));
				socket.send(message);
				echoes.push(await echo);
			}
			return echoes;
		},
		[address, messages] as const,
	);
}

for (const protocol of ["http", "https"] as const) {
	test(`a page's WebSocket over ${protocol} is listed message by message, as they come`, async ({ device, dashboard, origin }) => {
		await device.goto(origin.url(protocol, "/json/page"));
		const address = origin.url(protocol, "/socket/chat").replace("http", "ws");
		const first = JSON.stringify({ hello: "world", numbers: [1, 2, 3] });
		expect(await talk(device, address, [first, "second"])).toEqual([first, "second"]);

		await dashboard.getByRole("row").filter({ hasText: "/socket/chat" }).click();
		await dashboard.getByRole("tab", { name: "Messages" }).click();
		const rows = dashboard.getByRole("grid", { name: "Messages" }).getByRole("row");
		await expect(rows).toHaveCount(4);
		await expect(rows.first()).toContainText('{"hello":"world","numbers":[1,2,3]}');
		await expect(rows.first().getByRole("gridcell", { name: "from the client" })).toBeVisible();
		await expect(rows.nth(1).getByRole("gridcell", { name: "from the server" })).toBeVisible();
		await expect(dashboard.getByText("4 messages so far")).toBeVisible();

		await talk(device, address, ["third"]);
		await expect(rows).toHaveCount(6);
		await expect(rows.last()).toContainText("third");

		await rows.first().click();
		await expect(rows.first()).toHaveAttribute("aria-selected", "true");
		const message = dashboard.getByRole("region", { name: "Message 0" });
		await expect(message.getByText('"hello": "world",')).toBeVisible();
		await dashboard.keyboard.press("ArrowDown");
		await dashboard.keyboard.press("ArrowDown");
		await expect(dashboard.getByRole("region", { name: "Message 2" }).getByText("second")).toBeVisible();
		await dashboard.getByRole("button", { name: "Hex" }).click();
		await expect(dashboard.getByRole("region", { name: "Bytes of the body" })).toContainText(/73\s+65\s+63\s+6f\s+6e\s+64/);

		await device.evaluate(() => (window as unknown as { socket: WebSocket }).socket.close(1000, "bye"));
		await expect(rows).toHaveCount(8);
		await expect(rows.last()).toContainText("close 1000");
		await expect(dashboard.getByText("8 messages", { exact: true })).toBeVisible();

		// Its bodies are frames, the client's masked: no text, and the way to what they say.
		await expect(dashboard.getByRole("row").filter({ hasText: "/socket/chat" }).getByText("websocket")).toBeAttached();
		await dashboard.getByRole("tab", { name: "Request" }).click();
		await expect(dashboard.getByRole("button", { name: "Hex" })).toHaveAttribute("aria-pressed", "true");
		await dashboard.getByRole("note").getByRole("button", { name: "Messages" }).click();
		await expect(rows).toHaveCount(8);
	});
}

test("a share shows its session's messages as they come", async ({ browser, device, millpond, origin }) => {
	await device.goto(origin.url("https", "/json/page"));
	const address = origin.url("https", "/socket/shared").replace("http", "ws");
	await talk(device, address, ["before"]);
	const [session] = await millpond.sessions("/socket/shared");
	const made = await millpond.call("/api/shares", {
		method: "POST",
		headers: { "Content-Type": "application/json" },
		body: JSON.stringify({ session: session?.id }),
	});
	const guest = await (await browser.newContext()).newPage();
	await guest.goto(((await made.json()) as { url: string }).url);
	await guest.getByRole("tab", { name: "Messages" }).click();
	const rows = guest.getByRole("grid", { name: "Messages" }).getByRole("row");
	await expect(rows).toHaveCount(2);
	await talk(device, address, ["after"]);
	await expect(rows).toHaveCount(4);
	await rows.nth(3).click();
	await expect(guest.getByRole("region", { name: "Message 3" }).getByText("after")).toBeVisible();
	await guest.context().close();
});

test("a page's EventSource is listed event by event, as they come", async ({ device, dashboard, origin }) => {
	await device.goto(origin.url("http2", "/json/page"));
	const address = origin.url("http2", "/events/ticks?count=1000&pace=200ms");
	await device.evaluate(
		(url) =>
			new Promise((resolve) => {
				const source = new EventSource(url);
				(window as unknown as { source: EventSource }).source = source;
				source.addEventListener("message", resolve, { once: true });
			}),
		address,
	);
	await dashboard.getByRole("row").filter({ hasText: "/events/ticks" }).click();
	await dashboard.getByRole("tab", { name: "Events" }).click();
	const list = dashboard.getByRole("grid", { name: "Events" });
	await expect(list.getByRole("row").first()).toContainText(/\d{19}/);
	await expect(list.getByRole("row").nth(4)).toBeVisible(); // while they come
	await list.press("Home");
	await expect(dashboard.getByRole("region", { name: "Message 0" })).toContainText(/\d{19}/);
	await dashboard.getByRole("button", { name: "Lines" }).click();
	await expect(dashboard.getByRole("region", { name: "Message 0" })).toContainText("id: 0");
	await device.evaluate(() => (window as unknown as { source: EventSource }).source.close());
});
