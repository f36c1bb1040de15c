import { expect, test } from "vitest";
import { rowsOf, rowText } from "./rows";

const shown = (text: string, columns = 80) => {
	const rows = rowsOf(text, columns);
	return Array.from(rows.starts, (_, row) => [rows.lines[row], rowText(rows, row)]);
};

test.each([
	["lines of every kind", "a\nb\r\nc\rd", 80, [[1, "a"], [2, "b"], [3, "c"], [4, "d"]]],
	["a final line end makes no row of its own", "a\n", 80, [[1, "a"]]],
	["empty lines stay", "\n\nx", 80, [[1, ""], [2, ""], [3, "x"]]],
	["an empty text is one empty row", "", 80, [[1, ""]]],
	["a long line is cut, and numbered once", "abcdefg\nh", 3, [[1, "abc"], [0, "def"], [0, "g"], [2, "h"]]],
	["a line as wide as the view is not cut", "abc\nd", 3, [[1, "abc"], [2, "d"]]],
	["wide characters take two columns", "你好世界", 5, [[1, "你好"], [0, "世界"]]],
	["a character of two units is not cut in half", "😀😀😀", 4, [[1, "😀😀"], [0, "😀"]]],
	["a tab goes to the next stop", "ab\tcd", 5, [[1, "ab\tc"], [0, "d"]]],
	["one character wider than the view is still shown", "你a", 1, [[1, "你"], [0, "a"]]],
] as const)("%s", (_, text, columns, want) => expect(shown(text, columns)).toEqual(want));

test("nothing hides, and nothing turns the text around", () => {
	expect(shown("a\0b\x1b[31m\x7f\u202egnp.exe")).toEqual([[1, "a␀b␛[31m␡�gnp.exe"]]);
});

test("a row that is not there shows nothing, not the whole text", () => {
	expect(rowText(rowsOf("a\nb", 80), 2)).toBe("");
});

test("a line of a million characters is cut in linear time, and every character is in one row", () => {
	const rows = rowsOf("x".repeat(1_000_000), 100);
	expect(rows.starts).toHaveLength(10_000);
	expect(rows.ends.at(-1)).toBe(1_000_000);
	expect(rows.starts.every((start, row) => row === 0 || start === rows.ends[row - 1])).toBe(true);
});
