import { afterEach, beforeEach, expect, test } from "vitest";
import type { Api } from "../client";
import { BodySource } from "../state/source";
import { TestServer, until } from "../testing/server";
import { TextDocument } from "./document";
import { longestWhole, pageSize, slack } from "./pages";

let server: TestServer;
let api: Api;
let end: (() => void)[];
const path = "/api/sessions/1/response/body";
const utf8 = (text: string) => new TextEncoder().encode(text);

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
	end = [];
});
afterEach(async () => {
	for (const close of end) close();
	await server.stop();
});

/** Opens a body as the viewer does, with the size that the session says. */
function open(size: number, growing: boolean, type = "text/plain") {
	const source = new BodySource(api, api.body(1, "response"), "told");
	const document = new TextDocument(source, type);
	end.push(source.start(), document.start());
	const grow = (now: number, on: boolean) => source.update({ size: now, passed: now, complete: !on }, on);
	grow(size, growing);
	return { document, grow };
}

test("a text is read whole, once, in its charset", async () => {
	server.body(path, { bytes: Uint8Array.of(0x93, 0xfa, 0x96, 0x7b), growing: false });
	const { document } = open(4, false, "text/plain; charset=shift_jis");
	await until(() => document.state.get().text !== undefined);
	expect(document.state.get()).toMatchObject({ text: "日本", charset: "shift_jis", pages: 1, from: 0, to: 4 });
	expect(server.requests).toEqual([`GET ${path} bytes=0-3`]);
});

test("of a growing text only what was added is read, and a character cut in two becomes whole", async () => {
	const body = server.body(path, { bytes: utf8("data: 你").subarray(0, 7), growing: true });
	const { document, grow } = open(7, true);
	await until(() => document.state.get().text !== undefined);
	body.bytes = utf8("data: 你好\n");
	grow(13, true);
	await until(() => document.state.get().text === "data: 你好\n");
	expect(server.requests).toEqual([`GET ${path} bytes=0-6`, `GET ${path} bytes=7-12`]);
});

test("JSON is indented when it is complete, and not before", async () => {
	const body = server.body(path, { bytes: utf8('{"a":'), growing: true });
	const { document, grow } = open(5, true, "application/json");
	await until(() => document.state.get().text !== undefined);
	expect(document.state.get().indented).toBeUndefined();
	body.bytes = utf8('{"a":1}');
	grow(7, false);
	await until(() => document.state.get().indented !== undefined);
	expect(document.state.get()).toMatchObject({ text: '{"a":1}', indented: '{\n  "a": 1\n}' });
});

test("a long text is read a page at a time, never more", async () => {
	const lines = Array.from({ length: 400_000 }, (_, line) => `line ${line}\n`).join("");
	server.body(path, { bytes: utf8(lines), growing: false });
	const size = lines.length;
	expect(size).toBeGreaterThan(longestWhole);
	const { document } = open(size, false);
	await until(() => document.state.get().text !== undefined);
	const { pages, to, text } = document.state.get();
	expect(pages).toBe(Math.ceil(size / pageSize));
	expect(text).toBe(lines.slice(0, to));
	document.show(pages);
	await until(() => document.state.get().to === size);
	expect(document.state.get().text).toBe(lines.slice(document.state.get().from));
	document.showOffset(2 * pageSize + 10);
	await until(() => document.state.get().to !== size);
	expect(document.state.get().page).toBe(2);
	for (const request of server.requests) {
		const [, start, stop] = /bytes=(\d+)-(\d+)/.exec(request) ?? [];
		expect(Number(stop) - Number(start)).toBeLessThanOrEqual(pageSize + slack + 1);
	}
});

test("of several pages asked for quickly the last is shown", async () => {
	const bytes = new Uint8Array(8 * pageSize).fill(0x61);
	server.body(path, { bytes, growing: false });
	const { document } = open(bytes.length, false);
	for (let page = 1; page < 8; page++) document.show(page);
	await until(() => document.state.get().text !== undefined);
	expect(document.state.get()).toMatchObject({ page: 7, from: 7 * pageSize, to: 8 * pageSize });
});

test("a body that is gone says so", async () => {
	const { document } = open(5, false);
	await until(() => document.state.get().problem !== "");
	expect(document.state.get().problem).toBe("There is no such session.");
});
