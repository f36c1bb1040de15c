import { Api, Problem } from "../client";
import type { Grant } from "../types";
import { Live } from "./live";
import { OpenSession } from "./session";
import { Store } from "./store";

/** `dead`: the link never was, expired or was revoked. */
export type ShareState = { is: "asking" | "dead" | "unreachable" } | { is: "open"; grant: Grant };

/** SharedSession is all that the page of one share knows: its one session, and whether the link still works. */
export class SharedSession {
	readonly state = new Store<ShareState>({ is: "asking" });
	readonly api: Api;
	readonly live: Live;
	readonly session: OpenSession;

	readonly #path: string;

	/** Below the root of the API lies the share at shared/{id}, and what it gives below that. */
	constructor(root: URL, id: string) {
		this.#path = `../${encodeURIComponent(id)}`;
		const api = new Api(new URL(`shared/${encodeURIComponent(id)}/`, root));
		this.api = api;
		this.live = new Live({
			connect: () => new WebSocket(api.live()),
			onWindow: () => {},
			onInvalid: () => {},
			onSession: (changed, session) => this.session.changed(changed, session !== undefined),
			onStatus: () => {},
			mayRetry: () => this.#check(),
		});
		this.session = new OpenSession(api, this.live);
		// The server ends the connection when the share dies; whether it did is asked at once.
		this.live.connection.subscribe(() => {
			if (this.live.connection.get() === "reconnecting") this.#check();
		});
	}

	async start(token: string): Promise<void> {
		try {
			if (token !== "") await this.api.login(token);
		} catch (error) {
			this.#failed(error);
			return;
		}
		if (!(await this.#check())) return;
		const state = this.state.get();
		if (state.is !== "open") return;
		this.session.open(state.grant.session);
		this.live.start();
	}

	#check = async (): Promise<boolean> => {
		try {
			this.state.set({ is: "open", grant: await this.api.get<Grant>(this.#path) });
			return true;
		} catch (error) {
			return this.#failed(error);
		}
	};

	/** Whether to go on trying: a server that cannot be reached may come back, a dead link does not. */
	#failed(error: unknown): boolean {
		if (error instanceof Problem && error.status < 500) {
			this.state.set({ is: "dead" });
			this.session.close();
			this.live.stop();
			return false;
		}
		if (this.state.get().is === "asking") this.state.set({ is: "unreachable" });
		return this.state.get().is === "open";
	}
}
