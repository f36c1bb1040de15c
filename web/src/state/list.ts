import { Scroller } from "../scroll/scroller";
import { visibleRows } from "../scroll/geometry";
import type { LiveWindow, Summary } from "../types";
import type { View } from "./live";
import { Store } from "./store";

/** The height of a row in CSS pixels; --row in tokens.css. */
export const rowHeight = 26;

/** Rows asked for beyond each end of the viewport, so that a scroll of a page shows rows at once. */
const beyond = 20;
/** The most rows that a window may have; the server refuses more. */
const longestWindow = 500;

/** A session that is selected, and where it stands in the view. */
export interface Selected {
	id: number;
	position: number;
	row: Summary;
}

export interface ListState {
	/** Whether a first window came. */
	ready: boolean;
	/** The filter of the rows shown, which trails the one being typed. */
	filter: string;
	first: number;
	total: number;
	/** The position of rows[0]. */
	from: number;
	rows: Summary[];
	scanning: boolean;
	selected: Selected | undefined;
}

/**
 * SessionList is one dashboard's window over the sessions. It holds the rows in and near the viewport and nothing else,
 * so a million sessions cost the browser as much as a hundred.
 */
export class SessionList {
	readonly state = new Store<ListState>({
		ready: false,
		filter: "",
		first: 0,
		total: 0,
		from: 0,
		rows: [],
		scanning: false,
		selected: undefined,
	});
	/** What stands in the filter field, and what is wrong with it. */
	readonly filter = new Store<{ text: string; problem: string }>({ text: "", problem: "" });
	readonly scroller = new Scroller(rowHeight, { follows: true });
	#show: (view: View) => void;
	/** A position to be selected when its row arrives. */
	#pending: number | undefined;
	/** A session to be selected wherever it stands: between these positions, low included. */
	#search: { id: number; low: number; high: number } | undefined;

	constructor(show: (view: View) => void) {
		this.#show = show;
		this.scroller.view.subscribe(this.#ask);
	}

	setFilter(text: string): void {
		this.#search = undefined;
		this.filter.set({ text, problem: "" });
		this.#ask();
	}

	/** The row at an index from the top, where it is known. */
	rowAt(index: number): Summary | undefined {
		const { first, from, rows } = this.state.get();
		return rows[index + first - from];
	}

	/** Selects the row at an index from the top, and brings it into view. */
	select(index: number): void {
		const { first, total } = this.state.get();
		if (total === 0) return;
		const at = Math.min(Math.max(0, index), total - 1);
		this.#search = undefined;
		this.#pending = first + at;
		this.scroller.reveal(at);
		this.#selectPending();
	}

	/** Selects the row `by` rows below the selected one. Where none is selected, it starts at the newest. */
	move(by: number): void {
		const { first, total, selected } = this.state.get();
		const at = this.#pending ?? selected?.position;
		this.select(at === undefined ? total - 1 : at - first + by);
	}

	/** The session that is being looked for. */
	get sought(): number | undefined {
		return this.#search?.id;
	}

	/** Selects a session by its id, and brings it into view. Where it is not in the view, none is selected. */
	find(id: number): void {
		if (this.state.get().selected?.id === id) return;
		this.unselect();
		this.#search = { id, low: 0, high: Number.POSITIVE_INFINITY };
		this.#seek();
	}

	unselect(): void {
		this.#search = undefined;
		this.#pending = undefined;
		this.state.patch({ selected: undefined });
	}

	/** The server sent rows. */
	onWindow = (window: LiveWindow, filter: string): void => {
		const before = this.state.get();
		const sameView = before.ready && before.filter === filter;
		this.state.set({
			ready: true,
			filter,
			first: window.first,
			total: window.total,
			from: window.from,
			rows: window.rows,
			scanning: window.scanning ?? false,
			selected: found(before.selected, window),
		});
		if (sameView) this.scroller.setRows(window.total, Math.max(0, window.first - before.first));
		else {
			this.#pending = undefined;
			this.scroller.setRows(window.total);
			this.scroller.scrollToEnd();
		}
		this.#selectPending();
		this.#seek();
	};

	onInvalid = (filter: string, problem: string): void => {
		if (this.filter.get().text === filter) this.filter.patch({ problem });
	};

	/** Rows stand in the order of their ids: each window that comes leaves less than half of where the session can be. */
	#seek(): void {
		const search = this.#search;
		const { ready, filter, first, total, from, rows, scanning } = this.state.get();
		if (!search || !ready || scanning || filter !== this.filter.get().text) return;
		const at = rows.findIndex((row) => row.id === search.id);
		if (at >= 0) {
			this.select(from + at - first);
			return;
		}
		search.low = Math.max(search.low, first);
		search.high = Math.min(search.high, first + total);
		const [oldest, newest] = [rows[0], rows.at(-1)];
		if (oldest && search.id < oldest.id) search.high = Math.min(search.high, from);
		else if (newest && search.id > newest.id) search.low = Math.max(search.low, from + rows.length);
		else search.high = search.low;
		if (search.low < search.high) {
			this.scroller.scrollTo((Math.floor((search.low + search.high) / 2) - first) * rowHeight);
		} else {
			this.unselect();
			this.scroller.scrollToEnd();
		}
	}

	#selectPending(): void {
		if (this.#pending === undefined) return;
		const row = this.rowAt(this.#pending - this.state.get().first);
		if (!row) return;
		this.state.patch({ selected: { id: row.id, position: this.#pending, row } });
		this.#pending = undefined;
	}

	#ask = (): void => {
		this.#show(windowFor(this.scroller.view.get(), this.state.get().first, this.filter.get().text));
	};
}

/** The window to ask for: in steps, so that a scroll of a few pixels asks for nothing new. */
export function windowFor(
	view: { rows: number; rowHeight: number; viewport: number; position: number; atEnd: boolean },
	first: number,
	filter: string,
): View {
	const inView = Math.ceil(view.viewport / view.rowHeight) + 1;
	const count = Math.min(longestWindow, Math.ceil((inView + 3 * beyond) / beyond) * beyond);
	if (view.atEnd) return { filter, from: 0, count, tail: true };
	const { from } = visibleRows(view, view.position, beyond);
	return { filter, from: first + Math.floor(from / beyond) * beyond, count, tail: false };
}

/** The selected session with what the window knows of it. */
function found(selected: Selected | undefined, window: LiveWindow): Selected | undefined {
	if (!selected) return undefined;
	const at = window.rows.findIndex((row) => row.id === selected.id);
	const row = window.rows[at];
	return row ? { id: row.id, position: window.from + at, row } : selected;
}
