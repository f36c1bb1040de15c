import { afterEach, beforeEach, expect, test } from "vitest";
import type { Api } from "../client";
import { TestServer } from "../testing/server";
import type { Share } from "../types";
import { SessionShares } from "./shares";

let server: TestServer;
let api: Api;
let kept: Share[];
const share = (id: string, session: number): Share => ({ id, session, created: "", expires: "" });

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
	kept = [share("a", 1), share("b", 2)];
	server.json("GET /api/shares", () => ({ shares: kept }));
});
afterEach(() => server.stop());

test("only the session's own links are listed", async () => {
	const shares = new SessionShares(api, 2);
	await shares.load();
	expect(shares.state.get().shares).toEqual([share("b", 2)]);
});

test("a link is made, known once, and forgotten when it is revoked", async () => {
	server.json("POST /api/shares", () => {
		kept = [...kept, share("c", 1)];
		return { ...share("c", 1), url: "http://x/s/c#token=t" };
	});
	server.on("DELETE /api/shares/c", (_, response) => {
		kept = kept.filter((each) => each.id !== "c");
		response.writeHead(204).end();
	});
	const shares = new SessionShares(api, 1);
	await shares.make(3_600);
	expect(shares.state.get().made?.url).toBe("http://x/s/c#token=t");
	expect(shares.state.get().shares?.map((each) => each.id)).toEqual(["a", "c"]);
	await shares.revoke(share("c", 1));
	expect(shares.state.get()).toMatchObject({ made: undefined, shares: [share("a", 1)], problem: "" });
});

test("what does not work says why, and the list stays", async () => {
	const shares = new SessionShares(api, 1);
	await shares.load();
	server.json("POST /api/shares", () => ({ title: "Conflict", detail: "There are 1000 shares already. Revoke some." }), 409);
	await shares.make(60);
	expect(shares.state.get()).toMatchObject({ shares: [share("a", 1)], problem: "There are 1000 shares already. Revoke some." });
});
