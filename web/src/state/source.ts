import { type Api, explain } from "../client";
import type { Body, Side } from "../types";
import { RangeCache } from "./body";
import { Store } from "./store";

/** A body as it passed, or with its content codings undone. */
export type Representation = "wire" | "decoded";

export interface SourceState {
	/** Bytes that can be read now. */
	size: number;
	/** Whether more may come. */
	growing: boolean;
	/** Why there is nothing, or no more, to read. */
	problem: string;
}

/** How often a decoded body that is being made is asked for its size, in milliseconds. */
const pollEvery = 400;

/**
 * BodySource reads one representation of one body. The size of the wire bytes comes with the session; that of a decoded copy, which the server
 * makes while it is read, has to be asked for.
 */
export class BodySource {
	readonly address: string;
	readonly state = new Store<SourceState>({ size: 0, growing: true, problem: "" });
	readonly cache: RangeCache;
	readonly #api: Api;
	readonly #representation: Representation;
	#polling: AbortController | undefined;

	constructor(api: Api, id: number, side: Side, representation: Representation) {
		this.#api = api;
		this.#representation = representation;
		this.address = api.body(id, side, representation === "decoded" ? { as: "decoded" } : {});
		this.cache = new RangeCache((from, to, signal) => api.range(this.address, from, to, signal));
	}

	/** Begins to keep up with the body; the returned function ends that. */
	start = (): (() => void) => {
		if (this.#representation === "decoded") this.#poll();
		return () => {
			this.#polling?.abort();
			this.cache.close();
		};
	};

	/** The session says how the wire bytes are. */
	update(body: Body, growing: boolean): void {
		if (this.#representation === "wire") this.#set({ size: body.size, growing, problem: "" });
	}

	read(from: number, to: number, signal: AbortSignal): Promise<Uint8Array> {
		return this.#api.range(this.address, from, to, signal).then((piece) => piece.bytes);
	}

	async #poll(): Promise<void> {
		const polling = new AbortController();
		this.#polling = polling;
		while (!polling.signal.aborted) {
			try {
				const state = await this.#api.bodyState(this.address, polling.signal);
				this.#set(state);
				if (!state.growing) return;
			} catch (error) {
				if (!polling.signal.aborted) this.state.patch({ growing: false, problem: explain(error) });
				return;
			}
			await new Promise((resolve) => setTimeout(resolve, pollEvery));
		}
	}

	#set(next: SourceState): void {
		const before = this.state.get();
		if (before.size === next.size && before.growing === next.growing && before.problem === next.problem) return;
		this.cache.setSize(next.size);
		this.state.set(next);
	}
}
