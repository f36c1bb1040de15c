import { expect, test } from "vitest";
import { deletionWords, hashWord, limitsOf } from "./words";

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

test("a deletion tells how far it is, and after its end how many went", () => {
	const one = { id: 1, filter: "host:example", done: 1234, started: "2026-11-02T14:05:00Z", running: false };
	const ended = "2026-11-02T14:06:00Z";
	expect(deletionWords(one)).toBe("Sessions that match “host:example” are deleted next");
	expect(deletionWords({ ...one, running: true })).toBe("Deleting sessions that match “host:example”: 1,234 so far");
	expect(deletionWords({ ...one, ended })).toBe("1,234 sessions that match “host:example” were deleted");
	expect(deletionWords({ ...one, ended, done: 1 })).toBe("1 session that matches “host:example” was deleted");
	expect(deletionWords({ ...one, ended, filter: "", total: 1234 })).toBe("1,234 sessions were deleted");
	expect(deletionWords({ ...one, ended, cancelled: true, done: 120 })).toBe("Cancelled: 120 of the sessions that match “host:example” were deleted");
	expect(deletionWords({ ...one, ended, cancelled: true, done: 120, filter: "", total: 1234 })).toBe("Cancelled: 120 of 1,234 sessions were deleted");
	expect(deletionWords({ ...one, ended, problem: "the disk failed" })).toMatch(/^Not all sessions .* were deleted, but 1,234: the disk failed$/);
});
