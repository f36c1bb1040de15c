import { expect, test } from "vitest";
import { hashWord, limitsOf } from "./words";

test("the hash of a cut body does not read as the body's", () => {
	expect(hashWord({ complete: true })).toBe("sha256");
	expect(hashWord({ complete: false })).toBe("sha256 of the bytes kept");
});

test("limits are told with what they do", () => {
	expect(limitsOf({ used: 5 })).toBe("All sessions are kept.");
	const limited = limitsOf({ used: 5, max_bytes: 500e6, max_age: 7 * 86400, max_sessions: 1000, next: 3, next_started: new Date(2026, 10, 2, 14, 5).toISOString() });
	expect(limited).toContain("up to 500 MB, for 7 d 0 h, up to 1,000 sessions:");
	expect(limited).toMatch(/Next would go one of (2026-11-02 )?14:05\.$/);
	expect(limitsOf({ used: 5, max_bytes: 500e6, stuck: true, short: true, next: 3, next_started: "2026-11-02T14:05:00Z" })).toMatch(/nothing may go: .* full before\.$/);
});
