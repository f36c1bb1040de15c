import { type Api, explain } from "../client";
import { Scroller } from "../scroll/scroller";
import type { MessageList, StreamMessage } from "../types";
import { Store } from "./store";

/** Messages are asked for in pages of this many. */
export const pageSize = 100;
/** How many pages are kept: some hundred screens. */
export const keptPages = 64;
/** How often a message that is still being decompressed is asked for again, in milliseconds. */
const pendingEvery = 400;
/** The height of a row in CSS pixels; --row in tokens.css. */
const rowHeight = 26;

export interface MessagesState {
	selected: StreamMessage | undefined;
	/** Why the last page could not be read. */
	problem: string;
}

/**
 * MessagePages holds the parts of one session's list of messages that are or were in view, and which of them is selected. It asks for one page at a time, that in
 * view first. A page at the end of a list that grows is asked for again when it is wanted and has grown.
 */
export class MessagePages {
	readonly state = new Store<MessagesState>({ selected: undefined, problem: "" });
	/** Rises whenever a page arrived. */
	readonly version = new Store(0);
	readonly scroller = new Scroller(rowHeight, { follows: true });
	readonly #api: Api;
	readonly #path: string;
	/** In order of use: the first is the one to forget. */
	#pages = new Map<number, StreamMessage[]>();
	#wanted: { from: number; to: number } = { from: 0, to: 0 };
	#reading: AbortController | undefined;
	#timer: ReturnType<typeof setTimeout> | undefined;
	#count = 0;
	/** The message to select once it is here. */
	#chosen: number | undefined;

	constructor(api: Api, session: number) {
		this.#api = api;
		this.#path = `sessions/${session}/messages`;
	}

	/** Begins to work; the returned function ends that. */
	start = (): (() => void) => {
		this.#next();
		return () => {
			clearTimeout(this.#timer);
			this.#timer = undefined;
			this.#reading?.abort();
			this.#reading = undefined;
		};
	};

	/** Says how many messages there are. */
	setCount(count: number): void {
		if (count === this.#count) return;
		this.#count = count;
		this.scroller.setRows(count);
		this.#next();
	}

	get count(): number {
		return this.#count;
	}

	/** Says which messages are in view: [from, to). */
	want(from: number, to: number): void {
		if (from === this.#wanted.from && to === this.#wanted.to) return;
		this.#wanted = { from, to };
		this.#next();
	}

	/** A message; undefined while it is on its way. */
	at(index: number): StreamMessage | undefined {
		return this.#pages.get(Math.floor(index / pageSize))?.[index % pageSize];
	}

	select(index: number): void {
		if (this.#count === 0) return;
		const at = Math.min(Math.max(0, index), this.#count - 1);
		this.scroller.reveal(at);
		const message = this.at(at);
		this.#chosen = message ? undefined : at;
		if (message) this.state.patch({ selected: message });
	}

	deselect(): void {
		this.#chosen = undefined;
		this.state.patch({ selected: undefined });
	}

	/** Moves the selection; from none, to the newest. */
	move(by: number): void {
		const from = this.#chosen ?? this.state.get().selected?.number;
		this.select(from === undefined ? this.#count - 1 : from + by);
	}

	/** The next page to read: one in view that is not here, has grown, or has messages that were still being decompressed. */
	#due(again: boolean): number | undefined {
		const { from, to } = this.#wanted;
		for (let page = Math.floor(from / pageSize); page * pageSize < Math.min(to, this.#count); page++) {
			const held = this.#pages.get(page);
			const there = Math.min(pageSize, this.#count - page * pageSize);
			if (!held || held.length < there || (again && held.some((message) => message.pending))) return page;
		}
		return undefined;
	}

	async #next(again = false): Promise<void> {
		if (this.#reading || (this.#timer && !again)) return;
		const page = this.#due(again);
		if (page === undefined) return;
		const reading = new AbortController();
		this.#reading = reading;
		try {
			const list = await this.#api.get<MessageList>(this.#path, { from: String(page * pageSize), limit: String(pageSize) }, reading.signal);
			if (this.#reading !== reading) return;
			this.#keep(page, list);
		} catch (error) {
			if (this.#reading !== reading) return;
			this.state.patch({ problem: explain(error) });
			this.#reading = undefined;
			return; // what comes next asks again
		}
		this.#reading = undefined;
		if (this.#pages.get(page)?.some((message) => message.pending)) {
			clearTimeout(this.#timer);
			this.#timer = setTimeout(() => {
				this.#timer = undefined;
				this.#next(true);
			}, pendingEvery);
		} else this.#next();
	}

	#keep(page: number, list: MessageList): void {
		this.#pages.delete(page);
		this.#pages.set(page, list.messages);
		for (const oldest of this.#pages.keys()) {
			if (this.#pages.size <= keptPages) break;
			this.#pages.delete(oldest);
		}
		const { selected } = this.state.get();
		const fresh = selected && this.at(selected.number);
		// One that was decompressed meanwhile is shown anew; any other stays the object it is.
		this.state.patch({ problem: "", ...(fresh && fresh.pending !== selected.pending ? { selected: fresh } : {}) });
		if (this.#chosen !== undefined && this.at(this.#chosen)) this.select(this.#chosen);
		if (list.total > this.#count) {
			this.#count = list.total;
			this.scroller.setRows(list.total);
		}
		this.version.set(this.version.get() + 1);
	}
}
