import { afterEach, beforeEach, expect, test } from "vitest";
import { type Api, explain, Problem } from "./client";
import { TestServer } from "./testing/server";

let server: TestServer;
let api: Api;
const never = new AbortController().signal;

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
});
afterEach(() => server.stop());

test("addresses lie below the base, whatever path that is", () => {
	expect(api.body(7, "response", { as: "decoded" })).toMatch(/\/api\/sessions\/7\/response\/body\?as=decoded$/);
	expect(api.live()).toMatch(/^ws:\/\/127\.0\.0\.1:\d+\/api\/live$/);
});

test("a problem's detail is what people read", async () => {
	const error = await api.get("sessions/9").catch((e: unknown) => e);
	expect(error).toBeInstanceOf(Problem);
	expect([(error as Problem).status, explain(error)]).toEqual([404, "There is no such session."]);
});

test("a server that is gone is said to be", async () => {
	await server.stop();
	expect(explain(await api.get("status").catch((e: unknown) => e))).toBe("Millpond cannot be reached.");
	await server.start();
});

test("a token travels as Bearer, once", async () => {
	let sent: string | undefined;
	server.on("POST /api/login", (request, response) => {
		sent = request.headers.authorization;
		response.writeHead(204).end();
	});
	await api.login("secret");
	expect(sent).toBe("Bearer secret");
});

const read = async (from: number, to: number) => new TextDecoder().decode((await api.range(api.url("b"), from, to, never)).bytes);
const state = () => api.bodyState(api.url("b"), never);

test("bytes come by range; beyond the end there are none", async () => {
	server.body("/api/b", { bytes: new TextEncoder().encode("0123456789"), growing: true });
	expect(await read(2, 5)).toBe("234");
	expect(await read(8, 100)).toBe("89");
	expect(await read(10, 20)).toBe("");
	expect(await read(5, 5)).toBe("");
	expect(server.requests).toEqual(["GET /api/b bytes=2-4", "GET /api/b bytes=8-99", "GET /api/b bytes=10-19"]);
});

test("a whole body is never read where a part was asked for", async () => {
	server.on("GET /api/b", (_, response) => {
		response.writeHead(200, { "Content-Length": 1e9 });
		response.write("x".repeat(1_000));
	});
	await expect(api.range(api.url("b"), 0, 100, never)).rejects.toThrow("part");
});

test("how a body is: growing, complete, or not what its label says", async () => {
	const body = server.body("/api/b", { bytes: new Uint8Array(0), growing: true });
	expect(await state()).toEqual({ size: 0, growing: true, problem: "" });
	body.bytes = new Uint8Array(5);
	expect(await state()).toEqual({ size: 5, growing: true, problem: "" });
	body.growing = false;
	expect(await state()).toEqual({ size: 5, growing: false, problem: "" });
	body.undecodable = true;
	await expect(state()).rejects.toThrow("Content-Encoding");
});
