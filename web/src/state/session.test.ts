import { afterEach, beforeEach, expect, test } from "vitest";
import type { Api } from "../client";
import { TestServer, until } from "../testing/server";
import { OpenSession } from "./session";

let server: TestServer;
let api: Api;
let watched: Set<number>;
let open: OpenSession;
const session = (id: number, size = 0) => ({ id, request: { body: { passed: 0 } }, response: { body: { passed: size } } });

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
	watched = new Set();
	open = new OpenSession(api, { watch: (id) => watched.add(id), unwatch: (id) => watched.delete(id) });
});
afterEach(() => server.stop());

test("of two sessions opened quickly the second is shown, and watched alone", async () => {
	for (const id of [1, 2]) server.json(`GET /api/sessions/${id}`, () => session(id));
	open.open(1);
	open.open(2);
	await until(() => open.state.get().session !== undefined);
	expect(open.state.get().session?.id).toBe(2);
	expect([...watched]).toEqual([2]);
});

test("a session that changes is read again, one read at a time, and the last state is shown", async () => {
	let size = 0;
	let running = 0;
	let most = 0;
	server.on("GET /api/sessions/1", (_, response) => {
		most = Math.max(most, ++running);
		const now = size;
		setTimeout(() => {
			running--;
			response.writeHead(200).end(JSON.stringify(session(1, now)));
		}, 10);
	});
	open.open(1);
	for (let change = 0; change < 20; change++) {
		size += 100;
		open.changed(1, true);
	}
	await until(() => open.state.get().session?.response.body.passed === 2_000);
	expect(most).toBe(1);
	expect(server.requests.length).toBeLessThanOrEqual(3);
	expect(open.state.get().samples.response.at(-1)?.size).toBe(2_000);
});

test("what people say of a session is shown at once, and a reading that had begun before does not take it back", async () => {
	let note = "";
	server.on("GET /api/sessions/1", (_, response) => {
		const before = { ...session(1), note };
		setTimeout(() => response.writeHead(200).end(JSON.stringify(before)), 20);
	});
	open.open(1);
	await until(() => open.state.get().session !== undefined);
	open.changed(1, true);
	await until(() => server.requests.length === 2);
	note = "look";
	open.annotated({ id: 1, pinned: true, note, color: "" });
	expect(open.state.get().session?.note).toBe("look");
	await until(() => server.requests.length === 3 && open.state.get().session?.pinned === undefined);
	await until(() => open.state.get().session?.note === "look");
});

test("a session that is deleted while it is open says so, and keeps what was known", async () => {
	server.json("GET /api/sessions/1", () => session(1));
	open.open(1);
	await until(() => open.state.get().session !== undefined);
	open.changed(1, false);
	expect(open.state.get().problem).toBe("This session was deleted.");
	expect(open.state.get().gone).toBe(true);
	expect(open.state.get().session?.id).toBe(1);
	open.close();
	expect([...watched]).toEqual([]);
	expect(open.state.get()).toMatchObject({ id: undefined, session: undefined, problem: "" });
});

test("changes of another session are no concern", async () => {
	server.json("GET /api/sessions/1", () => session(1));
	open.open(1);
	await until(() => open.state.get().session !== undefined);
	open.changed(2, false);
	expect(open.state.get().problem).toBe("");
});
