import { expect, test } from "vitest";
import { longestWhole, pageBounds, pageCount, pageOf, pageRange, pageSize, slack } from "./pages";

/** Reads every page of a body, as the viewer does, and checks that they are the body without gap or overlap. */
function pagesOf(body: Uint8Array, charset: string) {
	const pages = [];
	let at = 0;
	for (let page = 0; page < pageCount(body.length); page++) {
		const range = pageRange(page, body.length);
		expect(range.to - range.from).toBeLessThanOrEqual(pageSize + slack + 1);
		const bounds = pageBounds(body.subarray(range.from, range.to), page, body.length, charset);
		expect(bounds.from).toBe(at);
		at = bounds.to;
		pages.push(body.subarray(bounds.from, bounds.to));
	}
	expect(at).toBe(body.length);
	return pages;
}

test("a text up to the limit is one page", () => {
	expect(pageCount(longestWhole)).toBe(1);
	expect(pageRange(0, longestWhole)).toEqual({ from: 0, to: longestWhole });
	expect(pageOf(longestWhole - 1, longestWhole)).toBe(0);
	expect(pageCount(longestWhole + 1)).toBe(5);
	expect(pageOf(13_599_999_999, 13_600_000_000)).toBe(12_969);
});

test("every line is whole, on one page", () => {
	const body = new TextEncoder().encode(Array.from({ length: 160_000 }, (_, line) => `line ${line} of many, naïve 你好\n`).join(""));
	for (const page of pagesOf(body, "utf-8")) {
		const text = new TextDecoder("utf-8", { fatal: true }).decode(page);
		expect(text.startsWith("line ")).toBe(true);
		expect(text.endsWith("\n")).toBe(true);
	}
});

test("a line that starts exactly at a page's nominal start begins that page", () => {
	const body = new Uint8Array(longestWhole + 5).fill(0x61);
	body[pageSize - 1] = 10;
	expect(pagesOf(body, "utf-8")[0]).toHaveLength(pageSize);
});

test("one endless line is cut between characters", () => {
	const body = new TextEncoder().encode(`a${"你".repeat(1_500_000)}`);
	for (const page of pagesOf(body, "utf-8")) expect(() => new TextDecoder("utf-8", { fatal: true }).decode(page)).not.toThrow();
});

test("UTF-16 is cut at its own line ends, not at bytes that look like one", () => {
	const text = `\u0a0a\u010a${"਀Ċ".repeat(20)}\n`.repeat(60_000);
	const body = new Uint8Array(new Uint16Array([...text].map((character) => character.charCodeAt(0))).buffer);
	const pages = pagesOf(body, "utf-16le").map((page) => new TextDecoder("utf-16le", { fatal: true }).decode(page));
	expect(pages.join("")).toBe(text);
	expect(pages.every((page) => page.endsWith("\n"))).toBe(true);
});
