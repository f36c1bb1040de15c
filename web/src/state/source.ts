import { type Api, explain } from "../client";
import type { Body } from "../types";
import { RangeCache } from "./body";
import { Store } from "./store";

/** A body as it passed, or with its content codings undone. */
export type Representation = "wire" | "decoded";

/** How the size of a source is known: it is told, by whoever knows the session, or has to be asked for. */
export type Sizing = "told" | "asked";

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
 * BodySource reads the bytes at one address: a representation of a body, or a message's payload. The size of a body's wire bytes comes with the session; that of a
 * decoded copy, which the server makes while it is read, has to be asked for.
 */
export class BodySource {
	readonly address: string;
	readonly state = new Store<SourceState>({ size: 0, growing: true, problem: "" });
	readonly cache: RangeCache;
	readonly #api: Api;
	readonly #sizing: Sizing;
	#polling: AbortController | undefined;

	constructor(api: Api, address: string, sizing: Sizing) {
		this.#api = api;
		this.#sizing = sizing;
		this.address = address;
		this.cache = new RangeCache((from, to, signal) => api.range(this.address, from, to, signal));
	}

	/** Begins to keep up with the body; the returned function ends that. */
	start = (): (() => void) => {
		if (this.#sizing === "asked") this.#poll();
		return () => {
			this.#polling?.abort();
			this.cache.close();
		};
	};

	/** The session says how the wire bytes are. */
	update(body: Body, growing: boolean): void {
		if (this.#sizing === "told") this.#set({ size: body.size, growing, problem: "" });
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
