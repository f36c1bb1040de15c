import { Store } from "./store";

/** Bodies are read in aligned blocks of this many bytes. */
export const blockSize = 64 << 10;
/** How many blocks are kept: 16 MiB, some hundred screens of hex. */
export const keptBlocks = 256;
/** How many blocks are asked for at the same time. */
export const parallelReads = 4;

/** What a read answered: the bytes there are, and the size of the whole, where the answer told. */
export interface Piece {
	bytes: Uint8Array;
	size: number | undefined;
}

/** Reads [from, to) of a body; fewer bytes where the body does not reach so far. */
export type ReadRange = (from: number, to: number, signal: AbortSignal) => Promise<Piece>;

/**
 * RangeCache holds the parts of one body that are or were in view. It asks for what is wanted now, the latest wish first, and forgets
 * wishes that went out of view before they were granted. A block at the end of a growing body is read again when it is wanted and has grown.
 */
export class RangeCache {
	/** Rises whenever a block arrived or could not be read. */
	readonly version = new Store(0);
	/** Why the last read gave nothing; empty when it did. */
	problem = "";
	#read: ReadRange;
	/** In order of use: the first is the one to forget. */
	#blocks = new Map<number, Uint8Array>();
	#wanted: number[] = [];
	#reading = new Map<number, AbortController>();
	#size = 0;

	constructor(read: ReadRange) {
		this.#read = read;
	}

	/** The body's size as far as it is known. It only grows. */
	get size(): number {
		return this.#size;
	}

	setSize(size: number): void {
		if (size <= this.#size) return;
		this.#size = size;
		this.#next();
	}

	/** Says which bytes are in view: [from, to). What was wanted before and is not any more will not be asked for. */
	want(from: number, to: number): void {
		const first = Math.floor(Math.max(0, from) / blockSize);
		const last = Math.ceil(Math.min(to, this.#size) / blockSize);
		this.#wanted = [];
		// More than half of the cache at once would push out what it is about to show.
		for (let block = first; block < Math.min(last, first + keptBlocks / 2); block++) this.#wanted.push(block);
		for (const [block, control] of this.#reading) if (!this.#wanted.includes(block)) control.abort();
		this.problem = "";
		this.#next();
	}

	/** The bytes [from, to) where all of them are here. */
	bytes(from: number, to: number): Uint8Array | undefined {
		const block = Math.floor(from / blockSize);
		const start = block * blockSize;
		const held = this.#blocks.get(block);
		if (to <= start + blockSize) return held && start + held.length >= to ? held.subarray(from - start, to - start) : undefined;
		const head = this.bytes(from, start + blockSize);
		const rest = head && this.bytes(start + blockSize, to);
		if (!rest) return undefined;
		const joined = new Uint8Array(to - from);
		joined.set(head);
		joined.set(rest, head.length);
		return joined;
	}

	/** Ends all reads. */
	close(): void {
		this.#wanted = [];
		for (const control of this.#reading.values()) control.abort();
	}

	#lacks(block: number): boolean {
		const there = Math.min(blockSize, this.#size - block * blockSize);
		return there > (this.#blocks.get(block)?.length ?? 0);
	}

	#next(): void {
		for (const block of this.#wanted) {
			if (this.#reading.size >= parallelReads || this.problem) return;
			if (!this.#reading.has(block) && this.#lacks(block)) this.#fetch(block);
		}
	}

	async #fetch(block: number): Promise<void> {
		const control = new AbortController();
		this.#reading.set(block, control);
		const from = block * blockSize;
		try {
			const piece = await this.#read(from, Math.min(from + blockSize, this.#size), control.signal);
			// A body that answers with fewer bytes than it said it has must not be asked for ever.
			if (piece.bytes.length <= (this.#blocks.get(block)?.length ?? 0)) this.problem = "these bytes could not be read";
			else this.#keep(block, piece.bytes);
			if (piece.size !== undefined && piece.size > this.#size) this.#size = piece.size;
		} catch (error) {
			if (!control.signal.aborted) this.problem = error instanceof Error ? error.message : String(error);
		} finally {
			if (this.#reading.get(block) === control) this.#reading.delete(block);
			this.version.set(this.version.get() + 1);
			this.#next();
		}
	}

	#keep(block: number, bytes: Uint8Array): void {
		this.#blocks.delete(block);
		this.#blocks.set(block, bytes);
		for (const wanted of this.#wanted) {
			const held = this.#blocks.get(wanted);
			if (!held) continue;
			this.#blocks.delete(wanted);
			this.#blocks.set(wanted, held);
		}
		for (const oldest of this.#blocks.keys()) {
			if (this.#blocks.size <= keptBlocks) break;
			this.#blocks.delete(oldest);
		}
	}
}
