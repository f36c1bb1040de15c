import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Api } from "../client";
import { TestServer, until } from "../testing/server";
import type { LiveWindow, Summary } from "../types";
import { Dashboard } from "./dashboard";

let server: TestServer;
let api: Api;
let dashboard: Dashboard;

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
	dashboard = new Dashboard(api);
});
afterEach(() => server.stop());

describe("the way in", () => {
	beforeEach(() => {
		server.json("GET /api/status", () => ({ title: "Unauthorized" }), 401);
		server.json("POST /api/login", () => ({ title: "Unauthorized" }), 401);
	});

	test("without a token, it is asked for", async () => {
		await dashboard.start("");
		expect(dashboard.access.get()).toBe("needed");
		expect(server.requests).toEqual(["GET /api/status"]);
	});

	test("with a wrong token, that is said", async () => {
		await dashboard.start("wrong");
		expect(dashboard.access.get()).toBe("refused");
	});

	test("with nobody there, that is said", async () => {
		await server.stop();
		await dashboard.start("token");
		expect(dashboard.access.get()).toBe("unreachable");
		api = await server.start();
	});
});

describe("deleting", () => {
	beforeEach(() => {
		const rows = [1, 2, 3].map((id) => ({ id }) as Summary);
		const window: LiveWindow = { type: "window", id: 1, first: 0, total: 3, from: 0, rows };
		dashboard.list.onWindow(window, "");
	});

	test("the selected session selects the one after it; the last, the one before", async () => {
		server.json("DELETE /api/sessions/2", () => ({ deleted: 1 }));
		server.json("DELETE /api/sessions/3", () => ({ deleted: 1 }));
		dashboard.list.select(1);
		await dashboard.deleteSession(2);
		expect(dashboard.list.state.get().selected?.id).toBe(3);
		await dashboard.deleteSession(3);
		expect(dashboard.list.state.get().selected?.id).toBe(2);
	});

	test("another session leaves the selected one selected", async () => {
		server.json("DELETE /api/sessions/2", () => ({ deleted: 1 }));
		dashboard.list.select(0);
		await dashboard.deleteSession(2);
		expect(dashboard.list.state.get().selected?.id).toBe(1);
	});

	test("all, or all that match, and closes the inspector", async () => {
		const asked: unknown[] = [];
		server.on("POST /api/deletions", (request, response) => {
			let text = "";
			request.on("data", (piece) => (text += piece));
			request.on("end", () => {
				asked.push(JSON.parse(text));
				response.writeHead(202, { "Content-Type": "application/json" }).end("{}");
			});
		});
		server.json("GET /api/sessions/1", () => ({ id: 1, request: { body: {} }, response: { body: {} } }));
		dashboard.list.select(0);
		dashboard.inspect();
		await until(() => dashboard.session.state.get().session !== undefined);
		await dashboard.deleteAll("a&b");
		await dashboard.deleteAll("");
		expect(dashboard.inspecting.get()).toBe(false);
		expect(dashboard.session.state.get().id).toBeUndefined();
		expect(asked).toEqual([{ filter: "a&b" }, { all: true }]);
	});

	test("many, and is cancelled, which is no mistake where it has ended", async () => {
		server.json("DELETE /api/deletions/4", () => ({}));
		await dashboard.cancelDeletion(4);
		await dashboard.cancelDeletion(5);
		expect(server.requests).toEqual(["DELETE /api/deletions/4", "DELETE /api/deletions/5"]);
		expect(dashboard.complaint.get()).toBe("");
	});

	test("what does not work says why, until the next attempt", async () => {
		dashboard.list.select(0);
		await dashboard.deleteSession(1);
		expect(dashboard.complaint.get()).toBe("There is no such session.");
		expect(dashboard.list.state.get().selected?.id).toBe(1);
		server.json("DELETE /api/sessions/1", () => ({ deleted: 1 }));
		await dashboard.deleteSession(1);
		expect(dashboard.complaint.get()).toBe("");
	});
});
