import { explain } from "../client";
import { Scroller } from "../scroll/scroller";
import type { BodySource } from "../state/source";
import { Store } from "../state/store";
import { charsetOf, isJson } from "./charset";
import { indentJson } from "./json";
import { longestWhole, pageBounds, pageCount, pageOf, pageRange } from "./pages";

export interface TextState {
	/** The page shown, and how many there are; a text up to 4 MiB is one page. */
	page: number;
	pages: number;
	/** The bytes of the body that the text is: [from, to). */
	from: number;
	to: number;
	/** Undefined until the first bytes came. */
	text: string | undefined;
	/** The same text indented, where it is JSON. */
	indented: string | undefined;
	charset: string;
	problem: string;
}

/** The height of a row of text in CSS pixels; .textRow in BodyView.module.css. */
const textRowHeight = 20;

/** While a body grows its text is made anew at most this often, in milliseconds. */
const refreshEvery = 500;

/**
 * TextDocument reads a body as text: whole up to 4 MiB, beyond that page by page, so that it never holds more than a page.
 * Of a growing body it reads what was added.
 */
export class TextDocument {
	readonly state = new Store<TextState>({
		page: 0,
		pages: 1,
		from: 0,
		to: 0,
		text: undefined,
		indented: undefined,
		charset: "",
		problem: "",
	});
	/** Where in the page the view is: a new page begins at its top. */
	readonly scroller = new Scroller(textRowHeight);
	readonly #source: BodySource;
	readonly #contentType: string;
	#bytes = new Uint8Array(0);
	#start: Uint8Array | undefined;
	#reading: AbortController | undefined;
	#timer: ReturnType<typeof setTimeout> | undefined;
	#again = false;
	#loaded = "";

	constructor(source: BodySource, contentType: string) {
		this.#source = source;
		this.#contentType = contentType;
	}

	/** Begins to keep up with the body; the returned function ends that. */
	start = (): (() => void) => {
		const end = this.#source.state.subscribe(this.#grown);
		this.#load();
		return () => {
			end();
			clearTimeout(this.#timer);
			this.#timer = undefined;
			this.#reading?.abort();
			this.#reading = undefined;
		};
	};

	show(page: number): void {
		const { pages } = this.state.get();
		const next = Math.min(Math.max(0, page), pages - 1);
		if (next === this.state.get().page) return;
		this.#reading?.abort();
		this.#reading = undefined;
		this.#again = false;
		this.scroller.scrollTo(0);
		this.state.patch({ page: next });
		this.#load();
	}

	/** Shows the page that holds a byte of the body. */
	showOffset(offset: number): void {
		this.show(pageOf(offset, this.#source.state.get().size));
	}

	#grown = (): void => {
		const { size, growing, problem } = this.#source.state.get();
		this.state.patch({ pages: pageCount(size), problem });
		if (!growing) this.#load();
		else
			this.#timer ??= setTimeout(() => {
				this.#timer = undefined;
				this.#load();
			}, this.state.get().text === undefined ? 0 : refreshEvery);
	};

	async #load(): Promise<void> {
		if (this.#reading) {
			this.#again = true;
			return;
		}
		const { size, growing } = this.#source.state.get();
		if (size === 0 && growing) return; // nothing is there, and nothing is known yet
		const { page } = this.state.get();
		const range = pageRange(page, size);
		const wanted = `${page} ${range.from} ${range.to} ${growing}`;
		if (wanted === this.#loaded) return;
		const reading = new AbortController();
		this.#reading = reading;
		try {
			const bytes = await this.#read(range, size, reading.signal);
			if (this.#reading !== reading) return;
			const charset = this.state.get().charset || charsetOf(this.#contentType, (this.#start ?? bytes).subarray(0, 64 << 10));
			const bounds = pageBounds(bytes, page, size, charset);
			const text = new TextDecoder(charset).decode(bytes.subarray(bounds.from - range.from, bounds.to - range.from));
			const same = text === this.state.get().text;
			this.#loaded = wanted;
			// An encoding guessed from the first few bytes of a growing body may still change.
			this.state.patch({ ...bounds, text, charset: growing && size < 1024 ? "" : charset, problem: this.#source.state.get().problem });
			if (!same) this.state.patch({ indented: undefined });
			if (!growing && size <= longestWhole && this.state.get().indented === undefined) await this.#indent(text, reading.signal);
		} catch (error) {
			if (this.#reading === reading && !reading.signal.aborted) this.state.patch({ problem: explain(error) });
		}
		if (this.#reading !== reading) return;
		this.#reading = undefined;
		if (this.#again) {
			this.#again = false;
			this.#load();
		}
	}

	/** Reads a range. What is shown whole is kept, and only what was added is read. */
	async #read(range: { from: number; to: number }, size: number, signal: AbortSignal): Promise<Uint8Array> {
		if (size > longestWhole) {
			this.#bytes = new Uint8Array(0);
			// The encoding shows in the first bytes of the body, not of the page.
			this.#start ??= await this.#source.read(0, 1024, signal);
			return this.#source.read(range.from, range.to, signal);
		}
		const have = this.#bytes.length;
		if (have >= size) return this.#bytes.subarray(0, size);
		const added = await this.#source.read(have, size, signal);
		const joined = new Uint8Array(have + added.length);
		joined.set(this.#bytes);
		joined.set(added, have);
		this.#bytes = joined;
		return joined;
	}

	async #indent(text: string, signal: AbortSignal): Promise<void> {
		if (!isJson(this.#contentType) && !/^\s*[[{]/.test(text)) return;
		const indented = await indentJson(text, signal);
		if (!signal.aborted) this.state.patch({ indented });
	}
}
