import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Api } from "../client";
import { TestServer } from "../testing/server";
import type { OutboundSettings } from "../types";
import { hostState, Outbound, own, patternOf } from "./outbound";

let server: TestServer;
let api: Api;
const given: OutboundSettings = {
	no_proxy: [],
	passthrough: [
		{ host: "flag.example", from: "--passthrough" },
		{ host: "one.example", from: "dashboard" },
	],
	insecure_hosts: [],
	min_tls: [],
	client_certs: [],
	max_bytes: { value: "20GiB", from: "default" },
	max_age: { value: "7d", from: "--max-age" },
	max_sessions: { value: "none", from: "default" },
};

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
	server.json("GET /api/settings", () => given);
});
afterEach(() => server.stop());

test("a host is added to what was set here, and taken from it", async () => {
	const sent: unknown[] = [];
	server.on("PATCH /api/settings", (request, response) => {
		let text = "";
		request.on("data", (piece) => (text += piece));
		request.on("end", () => {
			sent.push(JSON.parse(text));
			response.setHeader("Content-Type", "application/json");
			response.end(JSON.stringify(given));
		});
	});
	const outbound = new Outbound(api);
	expect(await outbound.setHost("passthrough", "two.example", true)).toBe(true);
	expect(await outbound.setHost("passthrough", "one.example", true)).toBe(true);
	expect(await outbound.setHost("passthrough", "one.example", false)).toBe(true);
	expect(sent).toEqual([{ passthrough: ["one.example", "two.example"] }, { passthrough: ["one.example"] }, { passthrough: [] }]);
});

test("what cannot be set says why, and what is set stays", async () => {
	server.json("PATCH /api/settings", () => ({ detail: "That cannot be set: a reason." }), 422);
	const outbound = new Outbound(api);
	await outbound.load();
	expect(await outbound.change({ upstream_proxy: "ftp://x" })).toBe(false);
	expect(outbound.state.get()).toEqual({ settings: given, problem: "That cannot be set: a reason.", working: false });
});

test("only what was set here can be changed", () => {
	expect(own(given.passthrough)).toEqual([{ host: "one.example", from: "dashboard" }]);
});

test.each([
	["a.example", "a.example"],
	["a.example:8443", "a.example"],
	["192.0.2.1:443", "192.0.2.1"],
	["[2001:db8::1]:8443", "2001:db8::1"],
	["[2001:db8::1]", "2001:db8::1"],
])("the pattern of %s is %s", (host, want) => expect(patternOf(host)).toBe(want));

describe("what a session tells about its host", () => {
	const failed = { state: "failed", flags: [] as string[] } as const;
	test.each([
		["a certificate of upstream's that does not verify", { certificates: true }, true],
		["a client that rejects Millpond's over TLS 1.2", { certificates: false }, false],
		["a client that rejects it over TLS 1.3, after upstream's was taken", { certificates: true, upstream_version: "TLS 1.3" }, false],
		["a failure without TLS", undefined, false],
	])("%s", (_, tls, want) => expect(hostState({ ...failed, tls })).toEqual({ upstreamRefused: want, passed: false }));

	test("a session that passed unread", () =>
		expect(hostState({ state: "done", flags: ["tunnel", "passthrough"] })).toEqual({ upstreamRefused: false, passed: true }));
});
