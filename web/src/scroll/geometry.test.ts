import { describe, expect, test } from "vitest";
import { exactEnd, maxPosition, reveal, scrolled, toPosition, toScrollTop, trackHeight, trackLimit, visibleRows, wheelPixels } from "./geometry";

const short = { rows: 1_000, rowHeight: 26, viewport: 600 };
// One million sessions, and the hex view of a 13.6 GB body.
const million = { rows: 1_000_000, rowHeight: 26, viewport: 600 };
const body = { rows: Math.ceil(13_600_000_000 / 16), rowHeight: 20, viewport: 600 };

describe("a list that fits into the track", () => {
	test("has its true height, and the scrollbar is the position", () => {
		expect(trackHeight(short)).toBe(26_000);
		for (const at of [0, 1, 12_345.5, maxPosition(short)]) {
			expect(toScrollTop(short, at)).toBe(at);
			expect(toPosition(short, at)).toBe(at);
		}
	});
	test("shorter than the viewport cannot be scrolled", () => {
		expect(maxPosition({ ...short, rows: 3 })).toBe(0);
		expect(toScrollTop({ ...short, rows: 3 }, 50)).toBe(0);
	});
});

describe.each([
	["a million rows", million],
	["13.6 GB of hex", body],
])("%s", (_, content) => {
	const last = maxPosition(content);
	const bottom = trackLimit - content.viewport;

	test("never makes an element taller than the limit", () => {
		expect(trackHeight(content)).toBe(trackLimit);
	});
	test("reaches both ends, exactly", () => {
		expect(toScrollTop(content, 0)).toBe(0);
		expect(toScrollTop(content, last)).toBe(bottom);
		expect(toPosition(content, bottom)).toBe(last);
		expect(toPosition(content, 500)).toBe(500);
		expect(toPosition(content, bottom - 500)).toBe(last - 500);
	});
	test("has an inverse everywhere", () => {
		for (let share = 0; share <= 1; share += 0.01) {
			const at = last * share;
			expect(Math.abs(toPosition(content, toScrollTop(content, at)) - at)).toBeLessThan(0.1);
		}
	});
	test("only ever moves down as the scrollbar does", () => {
		let before = -1;
		for (let top = 0; top <= bottom; top += exactEnd / 3) {
			const at = toPosition(content, top);
			expect(at).toBeGreaterThan(before);
			before = at;
		}
	});
	test("a finger moves as many pixels as it does, wherever it is", () => {
		const top = toScrollTop(content, last / 2);
		expect(scrolled(content, last / 2, top, top + 120)).toBe(last / 2 + 120);
		expect(scrolled(content, last / 2, top, top - 53)).toBe(last / 2 - 53);
	});
	test("a dragged thumb means the place it was put to", () => {
		expect(scrolled(content, 0, 0, bottom / 2)).toBe(toPosition(content, bottom / 2));
	});
	test("the top of the bar is the first row, the bottom the last, whatever came before", () => {
		expect(scrolled(content, 5_000, 300, 0)).toBe(0);
		expect(scrolled(content, last - 5_000, bottom - 300, bottom)).toBe(last);
	});
});

test("a wheel counts pixels, lines or pages", () => {
	expect([0, 1, 2].map((mode) => wheelPixels(short, 3, mode))).toEqual([3, 78, 1_800]);
});

test("rows to paint cover the viewport, and no more than was asked beyond it", () => {
	expect(visibleRows(short, 0)).toEqual({ from: 0, to: 24 });
	expect(visibleRows(short, 13)).toEqual({ from: 0, to: 24 });
	expect(visibleRows(short, 27)).toEqual({ from: 1, to: 25 });
	expect(visibleRows(short, 0, 5)).toEqual({ from: 0, to: 29 });
	expect(visibleRows(short, maxPosition(short), 5)).toEqual({ from: 971, to: 1_000 });
	expect(visibleRows({ ...short, rows: 0 }, 0)).toEqual({ from: 0, to: 0 });
});

test("revealing a row moves as little as possible", () => {
	expect(reveal(short, 260, 15)).toBe(260);
	expect(reveal(short, 260, 9)).toBe(234);
	expect(reveal(short, 260, 33)).toBe(34 * 26 - 600);
	expect(reveal(short, 0, 999)).toBe(maxPosition(short));
});
