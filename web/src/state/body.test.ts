import { expect, test } from "vitest";
import { blockSize, keptBlocks, parallelReads, type Piece, RangeCache } from "./body";

/** A body whose byte at offset n is n mod 251, read by a reader that answers when the test lets it. */
class Origin {
	reads: { from: number; to: number; signal: AbortSignal; answer: (piece?: Piece) => void; fail: (error: Error) => void }[] = [];
	cache = new RangeCache(
		(from, to, signal) =>
			new Promise((resolve, reject) => {
				signal.addEventListener("abort", () => reject(new Error("aborted")));
				const whole = { bytes: bytesOf(from, to), size: undefined };
				this.reads.push({ from, to, signal, answer: (piece = whole) => resolve(piece), fail: reject });
			}),
	);
	async answerAll() {
		for (let at = 0; at < this.reads.length; at++) {
			this.reads[at]?.answer();
			await settled();
		}
	}
}

function bytesOf(from: number, to: number): Uint8Array {
	const bytes = new Uint8Array(to - from);
	for (let at = 0; at < bytes.length; at++) bytes[at] = (from + at) % 251;
	return bytes;
}
const settled = () => new Promise((resolve) => setTimeout(resolve));

test("any offset of a 13.6 GB body is one read of one aligned block", async () => {
	const { cache, reads } = new Origin();
	cache.setSize(13_600_000_000);
	cache.want(4_194_304_100, 4_194_304_900);
	expect(reads.map(({ from, to }) => [from, to])).toEqual([[4_194_304_000 - (4_194_304_000 % blockSize), 4_194_304_000 - (4_194_304_000 % blockSize) + blockSize]]);
	expect(cache.bytes(4_194_304_100, 4_194_304_116)).toBeUndefined();
	reads[0]?.answer();
	await settled();
	expect(cache.bytes(4_194_304_100, 4_194_304_116)).toEqual(bytesOf(4_194_304_100, 4_194_304_116));
	cache.want(4_194_304_100, 4_194_304_900);
	expect(reads).toHaveLength(1);
});

test("bytes across blocks are joined", async () => {
	const origin = new Origin();
	origin.cache.setSize(3 * blockSize);
	origin.cache.want(0, 3 * blockSize);
	await origin.answerAll();
	// The second block is joined to the third; across all three, whole blocks are joined too.
	expect(origin.cache.bytes(5, 3 * blockSize - 5)).toHaveLength(3 * blockSize - 10);
	const [from, to] = [2 * blockSize - 5, 2 * blockSize + 5];
	expect(origin.cache.bytes(from, to)).toEqual(bytesOf(from, to));
	expect(origin.cache.bytes(from, 3 * blockSize + 1)).toBeUndefined();
});

test("only a few reads run at once, and what went out of view is dropped", async () => {
	const { cache, reads } = new Origin();
	cache.setSize(1e9);
	cache.want(0, 20 * blockSize);
	expect(reads).toHaveLength(parallelReads);
	cache.want(100 * blockSize, 101 * blockSize);
	await settled();
	expect(reads.slice(0, parallelReads).every((read) => read.signal.aborted)).toBe(true);
	expect(reads.slice(parallelReads).map((read) => read.from)).toEqual([100 * blockSize]);
	expect(cache.problem).toBe("");
});

test("no more blocks are kept than the limit, and those in view are", async () => {
	const origin = new Origin();
	origin.cache.setSize(1e9);
	for (let block = 0; block < keptBlocks + 10; block += 2) {
		origin.cache.want(block * blockSize, (block + 2) * blockSize);
		await origin.answerAll();
		origin.reads.length = 0;
	}
	const held = (block: number) => origin.cache.bytes(block * blockSize, block * blockSize + 1) !== undefined;
	expect(Array.from({ length: keptBlocks + 10 }, (_, block) => held(block)).filter(Boolean)).toHaveLength(keptBlocks);
	expect(held(0)).toBe(false);
	expect(held(keptBlocks + 9)).toBe(true);
});

test("the last block of a growing body is read again when it has grown", async () => {
	const { cache, reads } = new Origin();
	cache.setSize(100);
	cache.want(0, 200);
	reads[0]?.answer();
	await settled();
	expect(cache.bytes(0, 100)).toHaveLength(100);
	expect(cache.bytes(0, 101)).toBeUndefined();
	cache.setSize(150);
	expect(reads).toHaveLength(2);
	expect(cache.bytes(0, 100)).toHaveLength(100);
	reads[1]?.answer();
	await settled();
	expect(cache.bytes(0, 150)).toHaveLength(150);
});

test("a read that fails says why, and is tried again when wanted again", async () => {
	const { cache, reads } = new Origin();
	cache.setSize(100);
	cache.want(0, 100);
	reads[0]?.fail(new Error("the session was deleted"));
	await settled();
	expect(cache.problem).toBe("the session was deleted");
	expect(reads).toHaveLength(1);
	cache.want(0, 100);
	expect(reads).toHaveLength(2);
	expect(cache.problem).toBe("");
});

test("a body shorter than it said is not asked for for ever", async () => {
	const { cache, reads } = new Origin();
	cache.setSize(100);
	cache.want(0, 100);
	reads[0]?.answer({ bytes: new Uint8Array(0), size: undefined });
	await settled();
	expect(reads).toHaveLength(1);
	expect(cache.problem).not.toBe("");
});
