// The maths of a list that is taller than a browser's tallest element.
//
// The position, in pixels from the top of the whole content, is the truth; the scrollbar is a view of it. While the content fits into the track
// they are the same. Beyond that the track's two ends are still exact, pixel for pixel, and the part between them is compressed.

/** The tallest track, in CSS pixels. Chromium stops at 16,777,214 px at device ratio 2, Firefox at 17,895,697. */
export const trackLimit = 8_000_000;

/** How many pixels at each end of a compressed track are exact. */
export const exactEnd = 200_000;

/** What is scrolled: rows of one height, seen through a viewport. Heights are CSS pixels. */
export interface Content {
	rows: number;
	rowHeight: number;
	viewport: number;
}

/** The largest position: the last row at the bottom of the viewport. */
export function maxPosition(content: Content): number {
	return Math.max(0, content.rows * content.rowHeight - content.viewport);
}

/** The height of the element that the browser scrolls. */
export function trackHeight(content: Content): number {
	return Math.min(content.rows * content.rowHeight, trackLimit);
}

function maxScrollTop(content: Content): number {
	return Math.max(0, trackHeight(content) - content.viewport);
}

/** Whether the scrollbar shows the content compressed. */
export function compressed(content: Content): boolean {
	return content.rows * content.rowHeight > trackLimit;
}

export function clamp(content: Content, position: number): number {
	return Math.min(Math.max(0, position), maxPosition(content));
}

/** Where the scrollbar stands for a position. */
export function toScrollTop(content: Content, position: number): number {
	const bottom = maxPosition(content);
	const top = maxScrollTop(content);
	const at = clamp(content, position);
	if (!compressed(content) || at <= exactEnd) return at;
	if (at >= bottom - exactEnd) return top - (bottom - at);
	return exactEnd + ((at - exactEnd) * (top - 2 * exactEnd)) / (bottom - 2 * exactEnd);
}

/** The position that a scrollbar's place stands for; the inverse of toScrollTop. */
export function toPosition(content: Content, scrollTop: number): number {
	const bottom = maxPosition(content);
	const top = maxScrollTop(content);
	const at = Math.min(Math.max(0, scrollTop), top);
	if (!compressed(content) || at <= exactEnd) return at;
	if (at >= top - exactEnd) return bottom - (top - at);
	return exactEnd + ((at - exactEnd) * (bottom - 2 * exactEnd)) / (top - 2 * exactEnd);
}

/**
 * The position after the browser moved scrollTop. On a compressed track a finger moves by less than a viewport, and must move the content by as
 * many pixels; a dragged thumb moves by more (one pixel of it is thousands of the track's), and means the place it was put to.
 */
export function scrolled(content: Content, position: number, before: number, now: number): number {
	if (!compressed(content) || now <= 0 || now >= maxScrollTop(content)) return toPosition(content, now);
	const delta = now - before;
	return Math.abs(delta) < content.viewport ? clamp(content, position + delta) : toPosition(content, now);
}

/** A wheel event's distance in pixels: it may come in lines, which are rows here, or in pages. */
export function wheelPixels(content: Content, delta: number, mode: number): number {
	if (mode === 1) return delta * content.rowHeight;
	return mode === 2 ? delta * content.viewport : delta;
}

/** The rows to paint, [from, to), with `beyond` more on each side. */
export function visibleRows(content: Content, position: number, beyond = 0): { from: number; to: number } {
	const from = Math.floor(position / content.rowHeight) - beyond;
	const to = Math.ceil((position + content.viewport) / content.rowHeight) + beyond;
	return { from: Math.max(0, from), to: Math.max(0, Math.min(content.rows, to)) };
}

/** The position nearest to the present one at which the row is wholly in view. */
export function reveal(content: Content, position: number, row: number): number {
	const top = row * content.rowHeight;
	const bottom = top + content.rowHeight;
	if (top < position) return clamp(content, top);
	if (bottom > position + content.viewport) return clamp(content, bottom - content.viewport);
	return position;
}
