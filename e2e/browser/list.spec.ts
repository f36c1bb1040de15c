import { request } from "@playwright/test";
import { expect, type Millpond, type Origin, test } from "./fixtures.ts";

test("the list works from the keyboard", async ({ dashboard, millpond, origin }) => {
	await visit(millpond, origin, ["first", "second", "third", "fourth"]);
	const grid = dashboard.getByRole("grid", { name: "Sessions" });
	const selected = grid.locator("[role=row][aria-selected=true]");
	const close = dashboard.getByRole("button", { name: "Close the inspector" });
	await expect(grid.locator("[id^=session-]")).toHaveCount(4);
	await expect(grid).toBeFocused();

	// From the top: whichever way the list is ordered, each key moves as it is named.
	const ids = await grid.locator("[id^=session-]").evaluateAll((rows) =>
		rows.map((row) => [Number(row.getAttribute("aria-rowindex")), row.id] as const).sort(([a], [b]) => a - b).map(([, id]) => id),
	);
	const keys: [key: string, row: number][] = [
		["Home", 0],
		["ArrowDown", 1],
		["ArrowDown", 2],
		["ArrowUp", 1],
		["End", 3],
		["ArrowDown", 3],
		["Home", 0],
		["ArrowUp", 0],
		["ArrowDown", 1],
	];
	for (const [key, row] of keys) {
		await dashboard.keyboard.press(key);
		await expect(selected, key).toHaveCount(1);
		await expect(selected, key).toHaveAttribute("id", ids[row] ?? "");
		await expect(grid, key).toHaveAttribute("aria-activedescendant", ids[row] ?? "");
	}
	await expect(close).toHaveCount(0);

	await dashboard.keyboard.press("Enter");
	await expect(close).toBeVisible();
	await expect(dashboard.getByRole("region", { name: `Session ${ids[1]?.slice("session-".length)}` })).toBeVisible();
	await dashboard.keyboard.press("Escape");
	await expect(close).toHaveCount(0);
	await expect(grid).toBeFocused();
	await expect(selected).toHaveAttribute("id", ids[1] ?? "");
});

test("the filter narrows the list on the server, and Escape clears it", async ({ dashboard, millpond, origin }) => {
	await visit(millpond, origin, ["apple", "pear", "pineapple"]);
	const count = dashboard.getByTestId("count");
	const rows = dashboard.getByRole("grid", { name: "Sessions" }).locator("[id^=session-]");
	await expect(count).toHaveText("3 sessions");

	const asked: string[] = [];
	dashboard.on("websocket", (socket) => socket.on("framesent", ({ payload }) => asked.push(String(payload))));
	await dashboard.reload();
	await expect(rows).toHaveCount(3);

	const filter = dashboard.locator("#filter");
	await dashboard.keyboard.press("/");
	await expect(filter).toBeFocused();
	await filter.pressSequentially("APPLE");
	await expect(count).toHaveText("2 of 3");
	await expect(rows).toHaveCount(2);
	await expect(rows.filter({ hasText: "pear" })).toHaveCount(0);
	await expect.poll(() => asked.some((message) => message.includes('"APPLE"'))).toBe(true);

	await filter.press("Escape");
	await expect(filter).toHaveValue("");
	await expect(count).toHaveText("3 sessions");
	await expect(rows).toHaveCount(3);
});

test("the theme changes the colours, and is kept", async ({ dashboard }) => {
	const scheme = () => dashboard.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
	const ground = () => dashboard.evaluate(() => getComputedStyle(document.body).backgroundColor);
	const button = dashboard.getByRole("button", { name: /^Theme: / });
	expect(await scheme()).toBe("light dark");
	const light = await ground();
	await button.click(); // the system's is light: the first step is one that is seen
	await expect(button).toHaveAccessibleName(/^Theme: dark/);
	expect(await scheme()).toBe("dark");
	const dark = await ground();
	expect(dark).not.toBe(light);
	await button.click();
	await expect(button).toHaveAccessibleName(/^Theme: light/);
	expect(await scheme()).toBe("light");
	expect(await ground()).toBe(light);
	await button.click();
	await button.click();

	await dashboard.reload();
	await expect(button).toHaveAccessibleName(/^Theme: dark/);
	expect(await scheme()).toBe("dark");
	expect(await ground()).toBe(dark);
});

/** Asks through the proxy for a small resource of each name, one after the other, and for nothing else: a browser asks for things of its own. */
async function visit(millpond: Millpond, origin: Origin, names: string[]) {
	const client = await request.newContext({ proxy: { server: `http://${millpond.proxy}` } });
	for (const name of names) expect((await client.get(origin.url("http", `/json/${name}`))).ok()).toBe(true);
	await client.dispose();
}

test("a reload and a bookmark lead back to the filter and the session, and the token leaves the address", async ({ dashboard, millpond, origin }) => {
	await visit(millpond, origin, ["apple", "pear", "pineapple"]);
	const grid = dashboard.getByRole("grid", { name: "Sessions" });
	const filter = dashboard.getByRole("textbox", { name: "Filter" });
	const selected = grid.locator("[aria-selected=true]");
	const inspector = dashboard.getByRole("region", { name: "Session 1", exact: true });
	await filter.fill("apple");
	await grid.locator("#session-1").click();
	await expect(inspector).toBeVisible();
	await expect.poll(() => new URL(dashboard.url()).hash).toBe("#filter=apple&session=1");

	await dashboard.reload();
	await expect(inspector).toBeVisible();
	await expect(filter).toHaveValue("apple");
	await expect(selected).toHaveAttribute("id", "session-1");
	await expect(grid.locator("[id^=session-]")).toHaveCount(2);

	await grid.press("Escape");
	await expect.poll(() => new URL(dashboard.url()).hash).toBe("#filter=apple&selected=1");
	// A link that is opened in the same page, with the token.
	await dashboard.goto(`${millpond.dashboard}&session=2&filter=%3Cimg+src=x+onerror=alert(1)%3E`);
	await expect(dashboard.getByText("No session matches “<img src=x onerror=alert(1)>”")).toBeVisible();
	await dashboard.goto(`${millpond.dashboard}&session=2`);
	await expect(dashboard.getByRole("region", { name: "Session 2", exact: true })).toBeVisible();
	await expect.poll(() => new URL(dashboard.url()).hash).toBe("#session=2");
});

test("who deletes by a filter reads afterwards how many went", async ({ dashboard, millpond, origin }) => {
	await visit(millpond, origin, ["apple", "pear", "pineapple"]);
	await dashboard.locator("#filter").fill("apple");
	await expect(dashboard.getByTestId("count")).toHaveText("2 of 3");
	await dashboard.getByRole("button", { name: "Clear…", exact: true }).click();
	await dashboard.getByRole("dialog").getByRole("button", { name: /^Delete the 2 sessions/ }).click();
	const notice = dashboard.getByRole("group", { name: "Deletion" });
	await expect(notice).toContainText("2 sessions that match “apple” were deleted");
	expect((await millpond.sessions("")).map((each) => each.path)).toEqual(["/json/pear"]);
	await notice.getByRole("button", { name: "Dismiss" }).click();
	await expect(notice).toHaveCount(0);
});
