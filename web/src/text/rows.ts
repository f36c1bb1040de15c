// Cuts a text into the rows of a view: at line ends, and where a line is wider than the view.

import { picture } from "./wire";

/** A text's rows. Row n is text.slice(starts[n], ends[n]). */
export interface Rows {
	text: string;
	starts: Uint32Array;
	ends: Uint32Array;
	/** The line that a row begins, counted from 1; 0 where a row continues a line. */
	lines: Uint32Array;
	lineCount: number;
}

/** Columns to a tab; tab-size in the view's style. */
export const tabWidth = 4;

/** How many columns a character takes in a font of fixed width: East Asian wide ones take two, combining ones none. */
function width(code: number): number {
	if (code < 0x300) return 1;
	if (code <= 0x36f || (code >= 0x200b && code <= 0x200f) || (code >= 0xfe00 && code <= 0xfe0f)) return 0;
	const wide =
		(code >= 0x1100 && code <= 0x115f) ||
		(code >= 0x2e80 && code <= 0xa4cf) ||
		(code >= 0xac00 && code <= 0xd7a3) ||
		(code >= 0xf900 && code <= 0xfaff) ||
		(code >= 0xfe30 && code <= 0xfe6f) ||
		(code >= 0xff00 && code <= 0xff60) ||
		(code >= 0xffe0 && code <= 0xffe6) ||
		(code >= 0x1f000 && code <= 0x1faff) ||
		(code >= 0x20000 && code <= 0x3fffd);
	return wide ? 2 : 1;
}

/** Cuts a text into rows of at most `columns` columns. CR LF, LF and CR end a line. */
export function rowsOf(text: string, columns: number): Rows {
	const starts: number[] = [];
	const ends: number[] = [];
	const lines: number[] = [];
	let lineCount = 0;
	let start = 0;
	let begins = true;
	const push = (end: number) => {
		starts.push(start);
		ends.push(end);
		lines.push(begins ? ++lineCount : 0);
	};
	let column = 0;
	for (let at = 0; at < text.length; ) {
		const unit = text.charCodeAt(at);
		if (unit === 10 || unit === 13) {
			push(at);
			at += unit === 13 && text.charCodeAt(at + 1) === 10 ? 2 : 1;
			start = at;
			column = 0;
			begins = true;
			continue;
		}
		const code = unit >= 0xd800 && unit <= 0xdbff ? (text.codePointAt(at) ?? unit) : unit;
		const takes = unit === 9 ? tabWidth - (column % tabWidth) : width(code);
		if (column + takes > columns && at > start) {
			push(at);
			start = at;
			column = 0;
			begins = false;
		}
		column += takes;
		at += code > 0xffff ? 2 : 1;
	}
	if (start < text.length || lineCount === 0) push(text.length);
	return { text, starts: Uint32Array.from(starts), ends: Uint32Array.from(ends), lines: Uint32Array.from(lines), lineCount };
}

/** What a row shows; nothing for a row that is not there. */
export function rowText(rows: Rows, row: number): string {
	return picture(rows.text.slice(rows.starts[row] ?? rows.text.length, rows.ends[row]));
}
