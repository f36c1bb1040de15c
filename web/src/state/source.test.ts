import { afterEach, beforeEach, expect, test } from "vitest";
import type { Api } from "../client";
import { TestServer, until } from "../testing/server";
import { BodySource } from "./source";

let server: TestServer;
let api: Api;
let end = () => {};
const decoded = "/api/sessions/1/response/body?as=decoded";

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
});
afterEach(async () => {
	end();
	await server.stop();
});

test("a decoded body is asked for its size until it is complete, and not after", async () => {
	const body = server.body(decoded, { bytes: new Uint8Array(0), growing: true });
	const source = new BodySource(api, api.body(1, "response", { as: "decoded" }), "asked");
	end = source.start();
	await until(() => server.requests.length > 0);
	body.bytes = new Uint8Array(1_000);
	await until(() => source.state.get().size === 1_000);
	expect(source.state.get().growing).toBe(true);
	body.growing = false;
	await until(() => !source.state.get().growing);
	const asked = server.requests.length;
	source.cache.want(0, 1_000);
	await until(() => source.cache.bytes(0, 1_000) !== undefined);
	expect(server.requests.slice(asked)).toEqual([`GET ${decoded} bytes=0-999`]);
});

test("a body whose label lies says so, and is not asked for again", async () => {
	server.body(decoded, { bytes: new Uint8Array(0), growing: false, undecodable: true });
	const source = new BodySource(api, api.body(1, "response", { as: "decoded" }), "asked");
	end = source.start();
	await until(() => source.state.get().problem !== "");
	expect(source.state.get()).toMatchObject({ size: 0, growing: false });
	expect(server.requests).toHaveLength(1);
});

test("the size of wire bytes comes with the session, and costs no request", () => {
	const source = new BodySource(api, api.body(1, "request"), "told");
	end = source.start();
	source.update({ size: 5, passed: 9, complete: false }, true);
	expect(source.state.get()).toEqual({ size: 5, growing: true, problem: "" });
	expect(server.requests).toEqual([]);
});
