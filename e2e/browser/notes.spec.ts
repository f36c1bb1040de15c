// What people say of a session: pins and notes.

import { execFileSync } from "node:child_process";
import { expect, test } from "./fixtures.ts";

interface Said {
	pinned: boolean;
	note: string;
}

test("a session is pinned and noted in the inspector and by key, and the list says so", async ({ dashboard, millpond, origin }) => {
	for (const path of ["/json/first", "/json/second"])
		execFileSync("curl", ["-sS", "--proxy", `http://${millpond.proxy}`, origin.url("http", path)], { env: { ...process.env, no_proxy: "", NO_PROXY: "" } });
	const row = dashboard.getByRole("row").filter({ hasText: "/json/first" });
	await row.click();
	const inspector = dashboard.getByRole("region", { name: /^Session \d/ });
	const pin = inspector.getByRole("button", { name: /^Pin/ });
	await expect(pin).toHaveAttribute("aria-pressed", "false");
	await pin.click();
	await expect(pin).toHaveText("Pinned");
	await expect(pin).toHaveAttribute("aria-pressed", "true");
	await expect(dashboard.getByRole("img", { name: "pinned" })).toHaveCount(1);
	await expect(row.getByRole("img", { name: "pinned" })).toBeVisible();

	const note = inspector.getByRole("textbox", { name: "Note" });
	await note.fill("look at p, then /");
	await note.press("Enter");
	await expect(row.getByTitle("Note: look at p, then /")).toBeVisible();
	await note.fill("not this");
	await note.press("Escape");
	await expect(note).toHaveValue("look at p, then /");
	await note.fill("kept when left");
	await dashboard.getByRole("row").filter({ hasText: "/json/second" }).click();
	await expect(row.getByTitle("Note: kept when left")).toBeVisible();
	await expect(note).toHaveValue("");
	const said = async (path: string) => {
		const [summary] = await millpond.sessions(path);
		return (await (await millpond.call(`/api/sessions/${summary?.id}`)).json()) as Said;
	};
	expect(await said("/json/first")).toMatchObject({ pinned: true, note: "kept when left" });

	await dashboard.keyboard.press("p");
	await expect(dashboard.getByRole("img", { name: "pinned" })).toHaveCount(2);
	await expect(pin).toHaveText("Pinned");
	await dashboard.keyboard.press("p");
	await expect(pin).toHaveText("Pin");
	await dashboard.reload();
	await row.click();
	await expect(note).toHaveValue("kept when left");
	await expect(pin).toHaveText("Pinned");

	await dashboard.route("**/api/sessions/*", (route) => (route.request().method() === "PATCH" ? route.abort() : route.continue()));
	await note.fill("lost?");
	await note.press("Enter");
	await expect(inspector.getByRole("alert")).toHaveText("Millpond cannot be reached.");
	await expect(note).toHaveValue("lost?");

	// A narrow screen shows the inspector alone.
	await dashboard.setViewportSize({ width: 375, height: 700 });
	await expect(dashboard.getByRole("grid", { name: "Sessions" })).toBeHidden();
	await expect(inspector.getByRole("alert")).toBeInViewport();
	await note.press("Escape");
	await pin.click();
	await expect(dashboard.locator("[aria-live=assertive]").getByText("Millpond cannot be reached.")).toBeInViewport();
});

test("who deletes all is told that pinned sessions go, too", async ({ dashboard, millpond, origin }) => {
	execFileSync("curl", ["-sS", "--proxy", `http://${millpond.proxy}`, origin.url("http", "/json/first")], { env: { ...process.env, no_proxy: "", NO_PROXY: "" } });
	await dashboard.getByRole("row").filter({ hasText: "/json/first" }).click();
	await dashboard.keyboard.press("p");
	await dashboard.getByRole("button", { name: "Clear…", exact: true }).click();
	await expect(dashboard.getByRole("dialog")).toContainText("Pinned and shared sessions go, too.");
	await dashboard.getByRole("button", { name: /^Delete all/ }).click();
	await expect.poll(async () => (await millpond.sessions("")).length).toBe(0);
});
