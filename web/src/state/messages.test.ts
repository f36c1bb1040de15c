import { afterEach, beforeEach, expect, test } from "vitest";
import type { Api } from "../client";
import { TestServer, until } from "../testing/server";
import { keptPages, MessagePages, pageSize } from "./messages";

let server: TestServer;
let api: Api;
let pages: MessagePages;
let end = () => {};
let total: number;
let pending: Set<number>;

const page = (number: number) => `GET /api/sessions/7/messages?from=${number * pageSize}&limit=${pageSize}`;

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
	total = 0;
	pending = new Set();
	for (let number = 0; number <= keptPages + 2; number++) {
		server.json(page(number), () => ({
			total,
			final: false,
			messages: Array.from({ length: Math.max(0, Math.min(pageSize, total - number * pageSize)) }, (_, i) => {
				const at = number * pageSize + i;
				return { number: at, preview: `message ${at}`, pending: pending.has(at) || undefined };
			}),
		}));
	}
	pages = new MessagePages(api, 7);
	end = pages.start();
});
afterEach(async () => {
	end();
	await server.stop();
});

function grow(count: number) {
	total = count;
	pages.setCount(count);
}

test("what is in view is asked for, once", async () => {
	grow(1000);
	pages.want(240, 260);
	await until(() => pages.at(259) !== undefined);
	pages.want(245, 265);
	pages.want(190, 210);
	await until(() => pages.at(195) !== undefined);
	expect(server.requests).toEqual([page(2), page(1)]);
	expect(pages.at(250)?.preview).toBe("message 250");
	expect(pages.at(300)).toBeUndefined();
});

test("a page at the end is asked for again when there is more of it", async () => {
	grow(30);
	pages.want(0, 40);
	await until(() => pages.at(29) !== undefined);
	grow(35);
	pages.want(0, 41);
	await until(() => pages.at(34) !== undefined);
	expect(server.requests).toEqual([page(0), page(0)]);
});

test("an answer that tells of more messages adds rows", async () => {
	grow(30);
	total = 50;
	pages.want(0, 40);
	await until(() => pages.count === 50);
	expect(pages.scroller.view.get().rows).toBe(50);
});

test("messages that are still being decompressed are asked for again", async () => {
	pending.add(3);
	grow(10);
	pages.want(0, 10);
	await until(() => pages.at(3)?.pending === true);
	pages.select(3);
	pending.clear();
	await until(() => pages.at(3)?.pending === undefined);
	expect(pages.state.get().selected?.pending).toBeUndefined();
	expect(server.requests).toHaveLength(2);
});

test("a message that is not here yet is selected once it is", async () => {
	grow(500);
	pages.select(450);
	pages.move(1);
	expect(pages.state.get().selected).toBeUndefined();
	pages.want(440, 460);
	await until(() => pages.state.get().selected !== undefined);
	expect(pages.state.get().selected?.number).toBe(451);
});

test("no more than so many pages are kept", async () => {
	grow((keptPages + 2) * pageSize);
	for (let number = 0; number < keptPages + 2; number++) {
		pages.want(number * pageSize, number * pageSize + 1);
		await until(() => pages.at(number * pageSize) !== undefined);
	}
	expect(pages.at(0)).toBeUndefined();
	expect(pages.at(2 * pageSize)).toBeDefined();
});

test("a page that cannot be read says why", async () => {
	server.json(page(0), () => ({ detail: "It is gone." }), 404);
	grow(10);
	pages.want(0, 10);
	await until(() => pages.state.get().problem !== "");
	expect(pages.state.get().problem).toBe("It is gone.");
});
