import { beforeEach, describe, expect, test } from "vitest";
import type { LiveWindow, Summary } from "../types";
import { SessionList, windowFor } from "./list";
import type { View } from "./live";

let asked: View[];
let list: SessionList;
const last = () => asked.at(-1) as View;

/** A window over sessions whose id is their position plus 1000. */
function window(first: number, total: number, from: number, count: number): LiveWindow {
	const rows = Array.from({ length: Math.max(0, Math.min(count, first + total - from)) }, (_, n) => ({ id: 1000 + from + n }) as Summary);
	return { type: "window", id: 1, first, total, from, rows };
}

beforeEach(() => {
	asked = [];
	list = new SessionList((view) => asked.push(view));
	// What a mounted list knows: ten rows are in view.
	list.scroller.view.set({ ...list.scroller.view.get(), viewport: 260 });
});

describe("following the newest", () => {
	test("a list at its end asks for the tail, and stays there as sessions arrive", () => {
		expect(last()).toMatchObject({ tail: true, from: 0, filter: "" });
		list.onWindow(window(0, 1_000, 920, 80), "");
		expect(list.scroller.view.get().position).toBe(1_000 * 26 - 260);
		list.onWindow(window(0, 1_010, 930, 80), "");
		expect(list.scroller.view.get().position).toBe(1_010 * 26 - 260);
		expect(list.rowAt(1_009)?.id).toBe(2_009);
	});

	test("a list scrolled up stays where it is, whatever arrives or goes", () => {
		list.onWindow(window(0, 1_000, 920, 80), "");
		list.scroller.scrollTo(500 * 26);
		expect(last()).toMatchObject({ tail: false, from: 480 });
		list.onWindow(window(0, 1_500, 480, 80), "");
		expect(list.scroller.view.get().position).toBe(500 * 26);
		list.onWindow(window(100, 1_400, 480, 80), "");
		expect(list.scroller.view.get().position).toBe(400 * 26);
		expect(list.rowAt(400)?.id).toBe(1_500);
		list.scroller.scrollToEnd();
		expect(last()).toMatchObject({ tail: true });
	});
});

describe("selecting", () => {
	beforeEach(() => list.onWindow(window(0, 1_000, 920, 80), ""));

	test("starts at the newest, and goes up and down from there, never beyond the ends", () => {
		list.move(1);
		expect(list.state.get().selected).toMatchObject({ id: 1_999, position: 999 });
		list.move(-1);
		list.move(-1);
		expect(list.state.get().selected?.id).toBe(1_997);
		list.move(50);
		expect(list.state.get().selected?.id).toBe(1_999);
	});

	test("a row that is not here yet is selected when it comes", () => {
		list.select(0);
		expect(list.state.get().selected).toBeUndefined();
		expect(last()).toMatchObject({ tail: false, from: 0 });
		list.move(1);
		list.onWindow(window(0, 1_000, 0, 80), "");
		expect(list.state.get().selected).toMatchObject({ id: 1_001, position: 1 });
	});

	test("the selected session keeps its row up to date and moves with it", () => {
		list.select(990);
		const moved = window(0, 999, 919, 80);
		moved.rows = [...moved.rows.slice(0, 70), { id: 1_990, status: 204 } as Summary, ...moved.rows.slice(71)];
		list.onWindow(moved, "");
		expect(list.state.get().selected).toMatchObject({ id: 1_990, position: 989, row: { status: 204 } });
	});

	test("stays when its row is out of the window", () => {
		list.select(990);
		list.onWindow(window(0, 1_000, 0, 80), "");
		expect(list.state.get().selected).toMatchObject({ id: 1_990, position: 990 });
		list.unselect();
		expect(list.state.get().selected).toBeUndefined();
	});

	test("in an empty list selects nothing", () => {
		list.onWindow(window(0, 0, 0, 0), "nothing");
		list.move(1);
		expect(list.state.get().selected).toBeUndefined();
	});
});

describe("a filter", () => {
	test("is asked for at once; its rows replace the old ones when they come, at the newest", () => {
		list.onWindow(window(0, 1_000, 920, 80), "");
		list.scroller.scrollTo(0);
		list.setFilter("zip");
		expect(last()).toMatchObject({ filter: "zip" });
		expect(list.state.get()).toMatchObject({ filter: "", total: 1_000 });
		list.onWindow(window(0, 30, 0, 30), "zip");
		expect(list.state.get()).toMatchObject({ filter: "zip", total: 30 });
		expect(list.scroller.view.get().atEnd).toBe(true);
	});

	test("that is refused says why, as long as it stands in the field", () => {
		list.setFilter("(");
		list.onInvalid("(", "a bracket is missing");
		expect(list.filter.get()).toEqual({ text: "(", problem: "a bracket is missing" });
		list.setFilter("(a");
		list.onInvalid("(", "a bracket is missing");
		expect(list.filter.get()).toEqual({ text: "(a", problem: "" });
	});
});

test("a scroll of a few rows asks for nothing new, and a window never exceeds what the server allows", () => {
	const view = { rows: 1_000_000, rowHeight: 26, viewport: 600, position: 0, atEnd: false };
	const near = [500, 505, 515].map((row) => windowFor({ ...view, position: row * 26 }, 0, "").from);
	expect(near).toEqual([480, 480, 480]);
	expect(windowFor({ ...view, viewport: 100_000 }, 0, "").count).toBe(500);
	for (let row = 0; row < 200; row++) {
		const { from, count } = windowFor({ ...view, position: row * 26 + 13 }, 7, "");
		expect(from - 7).toBeLessThanOrEqual(row);
		expect(from - 7 + count).toBeGreaterThanOrEqual(row + 25);
	}
});

/** Answers what the list asks for, as the server does, until it asks for nothing new. */
function serve(total: number, filter = ""): number {
	let windows = 0;
	for (let answered: View | undefined; answered !== last() && windows < 100; windows++) {
		answered = last();
		list.onWindow(window(0, total, answered.tail ? Math.max(0, total - answered.count) : answered.from, answered.count), filter);
	}
	return windows;
}

describe("finding a session by its id", () => {
	test.each([1_000, 1_500, 50_123, 100_998, 100_999])("%i of 100,000 is selected and in view after few windows", (id) => {
		list.find(id);
		expect(list.sought).toBe(id);
		expect(serve(100_000)).toBeLessThan(16);
		expect(list.state.get().selected).toMatchObject({ id, position: id - 1000 });
		expect(list.sought).toBeUndefined();
		const { position } = list.scroller.view.get();
		expect((id - 1000) * 26).toBeGreaterThanOrEqual(position);
		expect((id - 999) * 26).toBeLessThanOrEqual(position + 260);
	});

	test.each([1, 999, 101_000, 999_999_999_999_999])("%i, which is not there, is given up, at the newest", (id) => {
		list.find(id);
		serve(100_000);
		expect(list.state.get().selected).toBeUndefined();
		expect(list.sought).toBeUndefined();
		expect(list.scroller.view.get().atEnd).toBe(true);
	});

	test("it waits for the filter's rows, and for all of them", () => {
		list.setFilter("x");
		list.find(1_005);
		list.onWindow(window(0, 10, 0, 10), "");
		list.onWindow({ ...window(0, 3, 0, 3), scanning: true }, "x");
		expect(list.sought).toBe(1_005);
		list.onWindow(window(0, 10, 0, 10), "x");
		expect(list.state.get().selected?.id).toBe(1_005);
	});

	test("what somebody does ends the search", () => {
		list.find(1_005);
		list.onWindow(window(0, 1_000, 920, 80), "");
		list.move(1);
		expect(list.sought).toBeUndefined();
		list.find(1_005);
		list.setFilter("y");
		expect(list.sought).toBeUndefined();
	});
});
