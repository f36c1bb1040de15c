import { expect, test } from "vitest";
import { contentLength, type Sample, sampled, speedOf, timeLeft } from "./progress";

test("speed is bytes over the last seconds, and unknown at first", () => {
	let samples: Sample[] = [];
	samples = sampled(samples, 0, 0);
	expect(speedOf(samples, 0)).toBeUndefined();
	for (let at = 100; at <= 1_000; at += 100) samples = sampled(samples, at, at * 1_000);
	expect(speedOf(samples, 1_000)).toBe(1_000_000);
	for (let at = 1_100; at <= 9_000; at += 100) samples = sampled(samples, at, 1_000_000 + (at - 1_000) * 10);
	expect(speedOf(samples, 9_000)).toBe(10_000);
});

test("a body that stands still slows down to nothing, and its samples are bounded", () => {
	let samples: Sample[] = [];
	for (let at = 0; at < 1_000; at++) samples = sampled(samples, at, at);
	expect(samples.length).toBeLessThanOrEqual(64);
	samples = sampled(sampled([], 0, 5), 1_000, 5);
	expect(speedOf(samples, 2_000)).toBe(0);
});

test("time left needs a total and a speed", () => {
	expect(timeLeft(4.2e9, 13.6e9, 112e6)).toBeCloseTo(83_929, 0);
	expect(timeLeft(1, undefined, 5)).toBeUndefined();
	expect(timeLeft(1, 10, 0)).toBeUndefined();
	expect(timeLeft(10, 10, 5)).toBeUndefined();
});

test.each([
	[[["Content-Length", "13600000000"]], 13_600_000_000],
	[[["content-length", "5"], ["Content-Length", "5"]], 5],
	[[["Content-Length", "5"], ["Content-Length", "6"]], undefined],
	[[["Content-Length", "-5"]], undefined],
	[[], undefined],
] as [[string, string][], number | undefined][])("the Content-Length of %j is %s", (fields, want) => expect(contentLength(fields)).toBe(want));
