// Pages of a text that is too long to hold. Page n begins at the first line that starts at or after byte n × pageSize, so the pages together
// are the whole text, each line is on one page, and any page can be read without those before it.

/** Texts up to this many bytes are shown whole. */
export const longestWhole = 4 << 20;
/** The nominal length of a page in bytes. */
export const pageSize = 1 << 20;
/** How far beyond its nominal end a page is read to find a line's end; a longer line is cut at a character. */
export const slack = 64 << 10;

export function pageCount(size: number): number {
	return size <= longestWhole ? 1 : Math.ceil(size / pageSize);
}

export function pageOf(offset: number, size: number): number {
	return size <= longestWhole ? 0 : Math.floor(offset / pageSize);
}

/** The bytes to read for a page: its nominal ones, the one before (a line may start exactly at the nominal start), and the slack. */
export function pageRange(page: number, size: number): { from: number; to: number } {
	if (size <= longestWhole) return { from: 0, to: size };
	return { from: Math.max(0, page * pageSize - 1), to: Math.min(size, (page + 1) * pageSize + slack) };
}

/** What of the bytes read for a page belongs to it: offsets into the body, [from, to). */
export function pageBounds(bytes: Uint8Array, page: number, size: number, charset: string): { from: number; to: number } {
	if (size <= longestWhole) return { from: 0, to: bytes.length };
	const base = pageRange(page, size).from;
	const from = page === 0 ? 0 : boundary(bytes, base, page * pageSize, charset);
	const to = (page + 1) * pageSize >= size ? size : boundary(bytes, base, (page + 1) * pageSize, charset);
	return { from, to: Math.max(from, to) };
}

/** The start of the first line at or after `nominal`; where none starts within the slack, of the first character. */
function boundary(bytes: Uint8Array, base: number, nominal: number, charset: string): number {
	const at = nominal - base;
	const wide = charset.startsWith("utf-16");
	// In UTF-16 a line feed is two bytes at an even place; a lone 0x0A may be half of another character.
	const [first, second] = charset === "utf-16be" ? [0, 10] : [10, 0];
	// Not the slack's last byte: a page's own read must see as much of a line end as its neighbour's does.
	for (let place = Math.max(0, at - 1); place < Math.min(bytes.length, at + slack) - 1; place++) {
		if (!wide && bytes[place] === 10) return base + place + 1;
		if (wide && (base + place) % 2 === 0 && bytes[place] === first && bytes[place + 1] === second) return base + place + 2;
	}
	if (wide) return nominal + (nominal % 2);
	let place = at;
	// UTF-8 continuation bytes are 10xxxxxx, and at most three follow each other.
	const last = charset === "utf-8" ? at + 3 : at;
	while (place < last && ((bytes[place] ?? 0) & 0xc0) === 0x80) place++;
	return base + place;
}
