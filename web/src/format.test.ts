import { expect, test } from "vitest";
import { formatBytes, formatCount, formatDay, formatDuration, formatDurationShort, formatLarger, formatNumberOf, formatTime, shortType } from "./format";

test.each([
	[0, "0 B"],
	[999, "999 B"],
	[1_000, "1.0 kB"],
	[65_535, "65.5 kB"],
	[99_949, "99.9 kB"],
	[99_950, "100 kB"],
	[611_000, "611 kB"],
	[999_499, "999 kB"],
	[999_500, "1.0 MB"],
	[4_194_304, "4.2 MB"],
	[13_600_000_000, "13.6 GB"],
	[5e18, "5000 PB"],
])("formatBytes(%d) is %s", (bytes, want) => expect(formatBytes(bytes)).toBe(want));

test.each([
	[0, "0.0 ms"],
	[0.42, "0.4 ms"],
	[9.96, "10 ms"],
	[211.6, "212 ms"],
	[999.4, "999 ms"],
	[999.6, "1.0 s"],
	[38_400, "38.4 s"],
	[59_960, "1 min 0 s"],
	[84_000, "1 min 24 s"],
	[3_599_600, "1 h 0 min"],
	[90_000_000, "1 d 1 h"],
])("formatDuration(%d) is %s", (milliseconds, want) => expect(formatDuration(milliseconds)).toBe(want));

test.each([
	[0.42, "0.4 ms"],
	[38_400, "38.4 s"],
	[59_960, "60 s"],
	[412_000, "412 s"],
	[1_000_000, "17 min"],
	[7_560_000, "2.1 h"],
	[276_480_000, "3.2 d"],
])("formatDurationShort(%d) is %s", (milliseconds, want) => expect(formatDurationShort(milliseconds)).toBe(want));

test("counts are grouped and agree with their noun", () => {
	expect(formatCount(88_310)).toBe("88,310");
	expect(formatNumberOf(1, "session")).toBe("1 session");
	expect(formatNumberOf(2_000, "session")).toBe("2,000 sessions");
	expect(formatNumberOf(0, "body", "bodies")).toBe("0 bodies");
});

test("times are local, with nanoseconds cut to milliseconds; a bad time is nothing", () => {
	const local = new Date(2026, 10, 30, 14, 2, 11, 480);
	expect(formatTime(local.toISOString().replace("480Z", "480999999Z"))).toBe("14:02:11.480");
	expect(formatTime("")).toBe("");
	expect(formatDay(local.toISOString(), new Date(2026, 10, 30, 23))).toBe("");
	expect(formatDay(local.toISOString(), new Date(2026, 11, 1))).toBe("2026-11-30");
});

test.each([
	["application/json; charset=utf-8", "json"],
	["application/problem+json", "json"],
	["text/html", "html"],
	["IMAGE/PNG", "png"],
	["image/svg+xml", "svg"],
	["video/mp4", "video"],
	["text/event-stream", "events"],
	["application/zip", "zip"],
	["application/vnd.ms-excel", "ms-excel"],
	["", ""],
	["nonsense", ""],
])("the short type of %s is %s", (type, want) => expect(shortType(type)).toBe(want));

test.each([
	[0, 0, "0 B"],
	[24_000_000, 16, "↑ 24.0 MB"],
	[16, 16, "16 B"],
	[16, 1_800_000, "1.8 MB"],
])("of %i sent and %i received, %j is shown", (sent, received, want) => expect(formatLarger(sent, received)).toBe(want));
