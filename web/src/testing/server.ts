/// <reference types="node" />
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Api } from "../client";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** A body that answers as the server does: by range, while it grows and when it is complete. */
export interface ServedBody {
	bytes: Uint8Array;
	growing: boolean;
	/** Answers 422: a body whose label lies. */
	undecodable?: boolean;
}

/** A real HTTP server for tests of what calls one. It keeps the requests it got, as "METHOD /path?query range". */
export class TestServer {
	readonly requests: string[] = [];
	#server = createServer((request, response) => this.#answer(request, response));
	#routes = new Map<string, Answer>();
	#bodies = new Map<string, ServedBody>();

	async start(): Promise<Api> {
		await new Promise<void>((resolve) => {
			this.#server.listen(0, "127.0.0.1", resolve);
		});
		return new Api(new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/api/`));
	}

	async stop(): Promise<void> {
		this.#server.closeAllConnections();
		await new Promise((resolve) => {
			this.#server.close(resolve);
		});
	}

	on(route: string, answer: Answer): void {
		this.#routes.set(route, answer);
	}

	json(route: string, make: () => unknown, status = 200): void {
		this.on(route, (_, response) => {
			response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(make()));
		});
	}

	body(path: string, body: ServedBody): ServedBody {
		this.#bodies.set(path, body);
		return body;
	}

	#answer(request: IncomingMessage, response: ServerResponse): void {
		this.requests.push([request.method, request.url, request.headers.range].filter(Boolean).join(" "));
		const route = this.#routes.get(`${request.method} ${request.url}`);
		const body = this.#bodies.get(request.url ?? "");
		if (route) route(request, response);
		else if (body) serve(body, request, response);
		else response.writeHead(404, { "Content-Type": "application/problem+json" }).end('{"title":"Not Found","detail":"There is no such session."}');
	}
}

function serve({ bytes, growing, undecodable }: ServedBody, request: IncomingMessage, response: ServerResponse): void {
	const size = bytes.length;
	const headers = { "Millpond-Body": growing ? "growing" : "complete" };
	if (undecodable) return void response.writeHead(422, { "Content-Type": "application/problem+json" }).end('{"title":"Unprocessable Entity"}');
	if (request.method === "HEAD") {
		if (!growing) return void response.writeHead(200, { ...headers, "Content-Length": size }).end();
		if (size === 0) return void response.writeHead(204, headers).end();
		return void response.writeHead(206, { ...headers, "Content-Range": `bytes 0-${size - 1}/*`, "Content-Length": size }).end();
	}
	const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
	const from = Number(range?.[1]);
	if (!range || from >= size) return void response.writeHead(416, { ...headers, "Content-Range": `bytes */${size}` }).end();
	const part = bytes.subarray(from, Math.min(size, Number(range[2]) + 1));
	response.writeHead(206, { ...headers, "Content-Range": `bytes ${from}-${from + part.length - 1}/${growing ? "*" : size}` }).end(part);
}

/** Waits until a condition holds. The test's own time limit ends the wait. */
export async function until(holds: () => boolean): Promise<void> {
	while (!holds())
		await new Promise((resolve) => {
			setTimeout(resolve, 5);
		});
}
