import { Store } from "../state/store";
import { type Content, clamp, compressed, maxPosition, reveal, scrolled, toScrollTop, trackHeight, wheelPixels } from "./geometry";

/** What a virtual list paints from. `atEnd` says that the last row is in view. */
export interface View extends Content {
	position: number;
	atEnd: boolean;
}

/** How near to the end, in pixels, counts as being there. */
const endSlack = 4;

/**
 * Scroller keeps the position of one virtual list, and the browser's scrollbar beside it. It lives outside React: it writes the track's height
 * and the scrollbar's place itself, so that both are right before the rows are painted.
 */
export class Scroller {
	readonly view: Store<View>;
	/** Whether the list stays at its end while rows are added. Only lists of arrivals want that. */
	readonly follows: boolean;
	#outer: HTMLElement | undefined;
	#track: HTMLElement | undefined;
	#scrollTop = 0;
	#settle = 0;

	constructor(rowHeight: number, options: { follows?: boolean; rows?: number } = {}) {
		this.follows = options.follows ?? false;
		this.view = new Store<View>({ rows: options.rows ?? 0, rowHeight, viewport: 0, position: 0, atEnd: true });
	}

	/** Takes over the scrolling element and the track inside it; the returned function lets go of them. */
	attach = (outer: HTMLElement): (() => void) => {
		this.#outer = outer;
		this.#track = outer.firstElementChild as HTMLElement;
		const resized = new ResizeObserver(() => this.#change({ viewport: outer.clientHeight }));
		resized.observe(outer);
		outer.addEventListener("scroll", this.#onScroll, { passive: true });
		outer.addEventListener("wheel", this.#onWheel, { passive: false });
		this.#change({ viewport: outer.clientHeight });
		return () => {
			outer.removeEventListener("wheel", this.#onWheel);
			resized.disconnect();
			outer.removeEventListener("scroll", this.#onScroll);
			window.clearTimeout(this.#settle);
			this.#outer = undefined;
			this.#track = undefined;
		};
	};

	/** Sets how many rows there are. Where `removed` rows went from the top, the rows in view stay where they are. */
	setRows(rows: number, removed = 0): void {
		this.#change({ rows, position: this.view.get().position - removed * this.view.get().rowHeight });
	}

	scrollTo(position: number): void {
		this.#change({ position });
	}

	scrollBy(pixels: number): void {
		this.scrollTo(this.view.get().position + pixels);
	}

	scrollToEnd(): void {
		this.scrollTo(Number.POSITIVE_INFINITY);
	}

	/** Brings a row into view with as little movement as possible. */
	reveal(row: number): void {
		const view = this.view.get();
		this.scrollTo(reveal(view, view.position, row));
	}

	/** How many whole rows are in view: the length of a page. */
	page(): number {
		const view = this.view.get();
		return Math.max(1, Math.floor(view.viewport / view.rowHeight) - 1);
	}

	#change(change: Partial<View>): void {
		const before = this.view.get();
		const next = { ...before, ...change };
		const stay = this.follows && before.atEnd && change.position === undefined;
		const grown = this.follows && before.atEnd && change.rows !== undefined;
		next.position = stay || grown ? maxPosition(next) : clamp(next, next.position);
		next.atEnd = next.position >= maxPosition(next) - endSlack;
		if (this.#track) this.#track.style.height = `${trackHeight(next)}px`;
		this.#place(next);
		if (same(before, next)) return;
		this.view.set(next);
	}

	/** Puts the scrollbar where the position says. Reading it back keeps the browser's rounding from looking like a movement. */
	#place(view: View): void {
		if (!this.#outer) return;
		const top = toScrollTop(view, view.position);
		if (Math.abs(top - this.#outer.scrollTop) >= 1) this.#outer.scrollTop = top;
		this.#scrollTop = this.#outer.scrollTop;
	}

	/** A wheel moves the content, not its compressed track: a long turn of it would look like a dragged thumb. */
	#onWheel = (event: WheelEvent): void => {
		const view = this.view.get();
		if (!compressed(view) || event.ctrlKey || event.deltaY === 0) return;
		event.preventDefault();
		this.scrollBy(wheelPixels(view, event.deltaY, event.deltaMode));
	};

	#onScroll = (): void => {
		if (!this.#outer) return;
		const now = this.#outer.scrollTop;
		if (now === this.#scrollTop) return;
		const before = this.view.get();
		const position = scrolled(before, before.position, this.#scrollTop, now);
		this.#scrollTop = now;
		const atEnd = position >= maxPosition(before) - endSlack;
		this.view.set({ ...before, position, atEnd });
		// The bar of a compressed track drifts from the position under a finger; it is put right when that rests.
		window.clearTimeout(this.#settle);
		this.#settle = window.setTimeout(() => this.#place(this.view.get()), 200);
	};
}

function same(a: View, b: View): boolean {
	return (
		a.rows === b.rows &&
		a.rowHeight === b.rowHeight &&
		a.viewport === b.viewport &&
		a.position === b.position &&
		a.atEnd === b.atEnd
	);
}
