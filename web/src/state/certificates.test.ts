import { afterEach, beforeEach, expect, test } from "vitest";
import type { Api } from "../client";
import { TestServer, until } from "../testing/server";
import { CertificateSource } from "./certificates";

let server: TestServer;
let api: Api;

beforeEach(async () => {
	server = new TestServer();
	api = await server.start();
});
afterEach(() => server.stop());

test("certificates are read once, and again only after a failure", async () => {
	let broken = true;
	server.on("GET /api/sessions/7/certificates", (_, response) => {
		if (broken) response.writeHead(500, { "Content-Type": "application/problem+json" }).end(JSON.stringify({ detail: "The disk is slow." }));
		else response.writeHead(200).end(JSON.stringify({ certificates: [{ subject: "CN=a" }] }));
	});
	const source = new CertificateSource(api, 7);
	await source.load();
	expect(source.state.get()).toMatchObject({ list: undefined, problem: "The disk is slow." });
	broken = false;
	source.load();
	source.load();
	await until(() => source.state.get().list !== undefined);
	await source.load();
	expect(source.state.get().list?.map((certificate) => certificate.subject)).toEqual(["CN=a"]);
	expect(server.requests).toHaveLength(2);
});
