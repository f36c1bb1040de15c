import { expect, test } from "vitest";
import { type Limit, limitOf, limitText, lossOf } from "./limits";
import type { OutboundSettings, StoreStatus } from "./types";

const value = (text: string) => ({ value: text, from: "dashboard" });

test("limits are read as the server reads them", () => {
	for (const [limit, text, want] of [
		["max_bytes", "20GiB", 20 * 2 ** 30],
		["max_bytes", "1.5 gib", 1.5 * 2 ** 30],
		["max_bytes", "500MB", 500e6],
		["max_bytes", "209715200", 209715200],
		["max_bytes", "", 20 * 2 ** 30],
		["max_bytes", "None", Number.POSITIVE_INFINITY],
		["max_bytes", "much", Number.NaN],
		["max_age", "1w1d12h", 204 * 3600],
		["max_age", "90m", 5400],
		["max_age", "1.5h", 5400],
		["max_age", "", Number.POSITIVE_INFINITY],
		["max_age", "7", Number.NaN],
		["max_sessions", " 20000 ", 20000],
		["max_sessions", "none", Number.POSITIVE_INFINITY],
		["max_sessions", "1e3", Number.NaN],
	] as const) {
		expect(limitOf(limit, text), `${limit} ${text}`).toBe(want);
	}
	expect(limitText("max_bytes", "20GiB")).toBe("21.5 GB");
	expect(limitText("max_bytes", "none")).toBe("none");
	expect(limitText("max_age", "7d")).toBe("7d");
});

test("a limit that deletes at once says what; one that is raised, not read, or not exceeded does not", () => {
	const now = Date.parse("2026-11-10T00:00:00Z");
	const settings = { max_bytes: value("20GiB"), max_age: value("none"), max_sessions: value("none") } as OutboundSettings;
	const store = { sessions: 21000, retention: { used: 10e9, next: 1, next_started: "2026-11-01T00:00:00Z" } } as StoreStatus;
	const loss = (limit: Limit, text: string, set = settings, kept: StoreStatus | undefined = store) => lossOf(limit, text, set, kept, now);
	expect(loss("max_sessions", "20000")).toBe("The oldest 1,000 sessions are deleted now, for good; pinned and shared ones stay.");
	expect(loss("max_sessions", "21000")).toBe("");
	expect(loss("max_sessions", "20000", { ...settings, max_sessions: value("10000") })).toBe("");
	expect(loss("max_sessions", "20000", { ...settings, max_sessions: value("20000") })).toBe("");
	expect(loss("max_sessions", "many")).toBe("");
	expect(loss("max_sessions", "none")).toBe("");
	expect(loss("max_bytes", "4GB")).toContain("some 6.0 GB of 10.0 GB");
	expect(loss("max_bytes", "15GB")).toBe("");
	expect(loss("max_bytes", "", { ...settings, max_bytes: value("none") })).toBe("");
	expect(loss("max_bytes", "", { ...settings, max_bytes: value("none") }, { ...store, retention: { used: 30e9 } })).toContain("deleted now");
	expect(loss("max_age", "7d")).toContain("ended longer ago than 7d");
	expect(loss("max_age", "9d")).toBe("");
	expect(loss("max_age", "7d", { ...settings, max_age: value("5d") })).toBe("");
	expect(loss("max_age", "7d", settings, { ...store, retention: { used: 1 } })).toContain("deleted now"); // which is the oldest is not told without a limit
	expect(loss("max_sessions", "1", settings, { ...store, sessions: 0 })).toBe("");
});
