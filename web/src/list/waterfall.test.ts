import { expect, test } from "vitest";
import type { Summary } from "../types";
import { barsOf, scaleOf } from "./waterfall";

const zero = Date.parse("2026-11-30T12:00:00Z");
const session = (started: number, first: number, duration: number, state: Summary["state"] = "done") =>
	({ started: new Date(zero + started).toISOString(), first_byte: first, duration, state }) as Summary;

test("sessions side by side share one axis", () => {
	const rows = [session(0, 50, 100), session(100, 20, 100), session(50, 0, 100)];
	const scale = scaleOf(rows);
	expect(barsOf(rows[0] as Summary, scale)).toEqual([
		{ kind: "wait", left: 0, width: 25 },
		{ kind: "get", left: 25, width: 25 },
	]);
	expect(barsOf(rows[1] as Summary, scale)).toEqual([
		{ kind: "wait", left: 50, width: 10 },
		{ kind: "get", left: 60, width: 40 },
	]);
	expect(barsOf(rows[2] as Summary, scale)).toEqual([{ kind: "wait", left: 25, width: 50 }]);
});

test("an idle hour between two sessions takes little room", () => {
	const rows = [session(0, 50, 100), session(3_600_000, 50, 100)];
	const scale = scaleOf(rows);
	expect(barsOf(rows[0] as Summary, scale)[0]?.left).toBe(0);
	expect(barsOf(rows[1] as Summary, scale)[0]?.left).toBeCloseTo(52, 0);
});

test("one endless stream does not make dots of the rest, and reaches the end", () => {
	const rows = [session(0, 10, 7_200_000, "open"), ...Array.from({ length: 9 }, (_, n) => session(n * 100, 50, 100))];
	const scale = scaleOf(rows);
	const [, running] = barsOf(rows[0] as Summary, scale);
	expect(running?.kind).toBe("running");
	expect((running?.left ?? 0) + (running?.width ?? 0)).toBe(100);
	const quick = barsOf(rows[1] as Summary, scale);
	expect(quick.reduce((sum, bar) => sum + bar.width, 0)).toBeGreaterThan(4);
});

test("a stream whose first byte came after the axis ends is still seen to run", () => {
	const rows = [session(0, 5_000, 7_200_000, "open"), session(0, 1, 2), session(0, 1, 2)];
	const [wait, running] = barsOf(rows[0] as Summary, scaleOf(rows));
	expect([wait?.kind, running?.kind]).toEqual(["wait", "running"]);
	expect(running?.width).toBe(4);
});

test("bars never leave the axis, whatever the times say", () => {
	const rows = [session(0, 500, 100), session(10, 0, 0), { ...session(0, 0, 5), started: "" }];
	const scale = scaleOf(rows);
	for (const row of rows)
		for (const bar of barsOf(row, scale)) {
			expect(bar.left).toBeGreaterThanOrEqual(0);
			expect(bar.width).toBeGreaterThanOrEqual(0);
			expect(bar.left + bar.width).toBeLessThanOrEqual(100.001);
		}
	expect(scaleOf([])).toEqual({ busy: [], length: 1 });
});
