import type { Piece } from "./state/body";
import type { Side } from "./types";

/** An error that the server answered with: an RFC 9457 problem. Its message says what to do. */
export class Problem extends Error {
	readonly status: number;

	constructor(status: number, message: string) {
		super(message);
		this.name = "Problem";
		this.status = status;
	}
}

/** What a HEAD of a body tells. */
export interface BodyState {
	/** Bytes that can be read now. */
	size: number;
	/** Whether more may come. */
	growing: boolean;
	/** Why decoding ended early; empty where it did not. */
	problem: string;
}

/**
 * Api calls the server. Its base is `api/` for the dashboard and `api/shared/{id}/` for a share, which has the same routes for its one session.
 * The cookie that login gave is what opens them, so that the browser itself can download a body of any size.
 */
export class Api {
	readonly base: URL;

	constructor(base: URL) {
		this.base = base;
	}

	url(path: string, query: Record<string, string> = {}): string {
		const url = new URL(path, this.base);
		for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
		return url.href;
	}

	/** The address of the live connection. */
	live(): string {
		const url = new URL("live", this.base);
		url.protocol = url.protocol.replace("http", "ws");
		return url.href;
	}

	body(id: number, side: Side, query: Record<string, string> = {}): string {
		return this.url(`sessions/${id}/${side}/body`, query);
	}

	/** The address of a message's payload. */
	payload(id: number, number: number, query: Record<string, string> = {}): string {
		return this.url(`sessions/${id}/messages/${number}/payload`, query);
	}

	/** Exchanges a token for the cookie. */
	async login(token: string): Promise<void> {
		await this.#call("login", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
	}

	async get<T>(path: string, query: Record<string, string> = {}, signal?: AbortSignal): Promise<T> {
		const answer = await this.#call(this.url(path, query), { signal: signal ?? null });
		return (await answer.json()) as T;
	}

	post<T>(path: string, body: object): Promise<T> {
		return this.#send<T>("POST", path, body);
	}

	patch<T>(path: string, body: object): Promise<T> {
		return this.#send<T>("PATCH", path, body);
	}

	async delete(path: string, query: Record<string, string> = {}): Promise<void> {
		await this.#call(this.url(path, query), { method: "DELETE" });
	}

	/** Reads bytes [from, to) of a body at an address that `body` gave; fewer where it ends before, none where it is not there yet. */
	async range(address: string, from: number, to: number, signal: AbortSignal): Promise<Piece> {
		const none = { bytes: new Uint8Array(0), size: undefined };
		if (to <= from) return none;
		const answer = await fetch(address, { headers: { Range: `bytes=${from}-${to - 1}` }, signal });
		if (answer.status === 204 || answer.status === 416) return none;
		if (!answer.ok) throw await problemOf(answer);
		// Only a body that is empty or wholly asked for may come as 200: never read a whole one for a part.
		if (answer.status !== 206 && (from > 0 || Number(answer.headers.get("Content-Length") ?? 0) > to)) {
			await answer.body?.cancel();
			throw new Problem(answer.status, "The server did not answer with the part that was asked for.");
		}
		return { bytes: new Uint8Array(await answer.arrayBuffer()), size: undefined };
	}

	/** Asks how a body at an address is. */
	async bodyState(address: string, signal: AbortSignal): Promise<BodyState> {
		const answer = await fetch(address, { method: "HEAD", signal });
		if (!answer.ok) {
			if (answer.status === 422) throw new Problem(422, "The body is not encoded as its Content-Encoding says.");
			throw new Problem(answer.status, `The body cannot be read (${answer.status}).`);
		}
		const range = /^bytes \d+-(\d+)\//.exec(answer.headers.get("Content-Range") ?? "");
		return {
			size: range ? Number(range[1]) + 1 : Number(answer.headers.get("Content-Length") ?? 0),
			growing: answer.headers.get("Millpond-Body") === "growing",
			problem: answer.headers.get("Millpond-Decode-Error") ?? "",
		};
	}

	async #send<T>(method: string, path: string, body: object): Promise<T> {
		const headers = { "Content-Type": "application/json" };
		const answer = await this.#call(path, { method, headers, body: JSON.stringify(body) });
		return (await answer.json()) as T;
	}

	async #call(path: string, init: RequestInit): Promise<Response> {
		const answer = await fetch(new URL(path, this.base), init);
		if (!answer.ok) throw await problemOf(answer);
		return answer;
	}
}

async function problemOf(answer: Response): Promise<Problem> {
	try {
		const problem = (await answer.json()) as { detail?: string; title?: string };
		return new Problem(answer.status, problem.detail ?? problem.title ?? answer.statusText);
	} catch {
		return new Problem(answer.status, `${answer.status} ${answer.statusText}`.trim());
	}
}

/** What an error says to people. A call that reached nobody says so, rather than "Failed to fetch". */
export function explain(error: unknown): string {
	if (error instanceof Problem) return error.message;
	if (error instanceof TypeError) return "Millpond cannot be reached.";
	return error instanceof Error ? error.message : String(error);
}
