import { type Api, explain, Problem } from "../client";
import type { Session, Summary } from "../types";
import type { Live } from "./live";
import { type Sample, sampled } from "./progress";
import { Store } from "./store";

export interface SessionState {
	id: number | undefined;
	/** All that is known of it; undefined until the first answer. */
	session: Session | undefined;
	/** It was deleted. */
	gone: boolean;
	/** Why it cannot be shown: deleted, or the server cannot be reached. */
	problem: string;
	/** How the bodies grew lately, for their speed. */
	samples: { request: Sample[]; response: Sample[] };
}

const nothing: SessionState = { id: undefined, session: undefined, gone: false, problem: "", samples: { request: [], response: [] } };

/**
 * OpenSession keeps one session up to date: it watches it over the live connection and reads it again whenever it changed, one read at a time.
 * Of several sessions opened quickly only the last is shown.
 */
export class OpenSession {
	readonly state = new Store<SessionState>(nothing);
	#api: Api;
	#live: Pick<Live, "watch" | "unwatch">;
	#reading: AbortController | undefined;
	#again = false;

	constructor(api: Api, live: Pick<Live, "watch" | "unwatch">) {
		this.#api = api;
		this.#live = live;
	}

	open(id: number): void {
		if (this.state.get().id === id) return;
		this.close();
		this.state.set({ ...nothing, id });
		this.#live.watch(id);
		this.#load();
	}

	close(): void {
		const { id } = this.state.get();
		if (id !== undefined) this.#live.unwatch(id);
		this.#reading?.abort();
		this.#reading = undefined;
		this.#again = false;
		this.state.set(nothing);
	}

	/** The live connection says that a session changed, or is gone. */
	changed = (id: number, exists: boolean): void => {
		if (this.state.get().id !== id) return;
		if (exists) this.#load();
		else this.state.patch({ gone: true, problem: "This session was deleted." });
	};

	/** What people say of a session was changed here, and this came back. */
	annotated({ id, pinned, note, color }: Pick<Summary, "id" | "pinned" | "note" | "color">): void {
		const { session } = this.state.get();
		if (session?.id !== id) return;
		this.state.patch({ session: { ...session, pinned, note, color } });
		this.#load(); // a reading that is under way may have what was before
	}

	async #load(): Promise<void> {
		if (this.#reading) {
			this.#again = true;
			return;
		}
		const { id } = this.state.get();
		if (id === undefined) return;
		const reading = new AbortController();
		this.#reading = reading;
		try {
			const session = await this.#api.get<Session>(`sessions/${id}`, {}, reading.signal);
			if (this.#reading !== reading) return;
			const { samples } = this.state.get();
			const now = Date.now();
			this.state.patch({
				session,
				problem: "",
				samples: {
					request: sampled(samples.request, now, session.request.body.passed),
					response: sampled(samples.response, now, session.response.body.passed),
				},
			});
		} catch (error) {
			if (this.#reading !== reading) return;
			this.state.patch({ gone: error instanceof Problem && error.status === 404, problem: explain(error) });
		}
		this.#reading = undefined;
		if (this.#again) {
			this.#again = false;
			this.#load();
		}
	}
}
