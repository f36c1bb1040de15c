// How much is kept: what the footer tells, and the limits in the dialog.

import { expect, test } from "./fixtures.ts";

for (const theme of ["light", "dark"] as const) {
	test(`the footer tells how much is kept, and the dialog limits it, ${theme}`, async ({ dashboard, device, millpond, origin }, info) => {
		await dashboard.emulateMedia({ colorScheme: theme });
		const foot = dashboard.getByRole("contentinfo");
		await expect(foot).toContainText(/kept.*of 21\.5 GB/);
		for (let i = 0; i < 6; i++) await device.goto(origin.url("http", `/json/a?count=${i}`));
		await expect.poll(async () => (await millpond.sessions("/json/")).length).toBe(6);
		const pinned = (await millpond.sessions("/json/")).at(-1)?.id ?? 0;
		await millpond.call(`/api/sessions/${pinned}`, { method: "PATCH", headers: { "Content-Type": "application/json" }, body: '{"pinned":true}' });

		await dashboard.getByRole("button", { name: "Settings" }).click();
		const limits = dashboard.getByRole("region", { name: "How much is kept" });
		const set = async (limit: string, value: string) => {
			await limits.getByRole("combobox", { name: "Limit" }).selectOption(limit);
			await limits.getByRole("textbox", { name: "How much" }).fill(value);
			await limits.getByRole("button", { name: "Set" }).first().click(); // another is at a question
		};
		await expect(limits.getByText("disk: 21.5 GB")).toBeVisible(); // as in the footer
		await limits.getByRole("combobox", { name: "Limit" }).selectOption("time");
		await expect(limits.getByRole("textbox", { name: "How much" })).toHaveAttribute("placeholder", "7d");
		await set("disk", "1MB");
		await expect(limits.getByRole("alert")).toContainText("100MiB is the least");
		await set("disk", "500MB");
		await expect(limits.getByText("disk: 500 MB")).toBeVisible();
		await expect(limits.getByRole("textbox", { name: "How much" })).toHaveAttribute("placeholder", "50GB"); // the form is as at first
		const question = limits.getByRole("group", { name: "Sessions would be deleted" });
		await set("sessions", "2");
		const before = (await millpond.sessions("")).map(({ id }) => id);
		await expect(question).toContainText(/The oldest \d+ sessions are deleted now/);
		await info.attach("the question", { body: await dashboard.screenshot(), contentType: "image/png" });
		await question.getByRole("button", { name: "Cancel" }).click();
		await expect(question).toHaveCount(0);
		await expect(limits.getByRole("textbox", { name: "How much" })).toHaveValue("2");
		expect((await millpond.sessions("")).map(({ id }) => id)).toEqual(expect.arrayContaining(before)); // and perhaps what a browser asked for by itself
		await set("sessions", "2");
		await question.getByRole("button", { name: "Set" }).click();
		await expect(limits.getByText("sessions: 2")).toBeVisible();
		await info.attach("the dialog", { body: await dashboard.screenshot(), contentType: "image/png" });
		await expect.poll(async () => (await millpond.sessions("")).length).toBe(2);
		expect((await millpond.sessions("")).at(-1)?.id).toBe(pinned);
		await limits.getByRole("button", { name: "Remove sessions: 2" }).click();
		await expect(limits.getByText("sessions: none")).toBeVisible();
		await dashboard.keyboard.press("Escape");
		await expect(foot).toContainText(/kept.*of 500 MB/);
		await expect(foot.getByTitle(/Sessions are kept up to 500 MB.*the oldest go first/)).toBeVisible();
	});
}
