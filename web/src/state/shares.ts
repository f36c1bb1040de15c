import { type Api, explain } from "../client";
import type { NewShare, Share, ShareList } from "../types";
import { Store } from "./store";

export interface SharesState {
	/** The links to the session that work; undefined until they were read. */
	shares: Share[] | undefined;
	/** The link made last: only this answer ever holds it whole. */
	made: NewShare | undefined;
	problem: string;
}

/** SessionShares makes, lists and revokes the links to one session. */
export class SessionShares {
	readonly state = new Store<SharesState>({ shares: undefined, made: undefined, problem: "" });
	readonly #api: Api;
	readonly #session: number;

	constructor(api: Api, session: number) {
		this.#api = api;
		this.#session = session;
	}

	load = (): Promise<void> => this.#attempt(async () => {});

	/** Makes a link that works for so many seconds. */
	make(seconds: number): Promise<void> {
		return this.#attempt(async () => {
			const made = await this.#api.post<NewShare>("shares", { session: this.#session, expires_in: seconds });
			this.state.patch({ made });
		});
	}

	revoke(share: Share): Promise<void> {
		return this.#attempt(async () => {
			await this.#api.delete(`shares/${share.id}`);
			if (this.state.get().made?.id === share.id) this.state.patch({ made: undefined });
		});
	}

	/** Does the work, and reads the list again. */
	async #attempt(work: () => Promise<void>): Promise<void> {
		try {
			await work();
			const { shares } = await this.#api.get<ShareList>("shares");
			this.state.patch({ shares: shares.filter((share) => share.session === this.#session), problem: "" });
		} catch (error) {
			this.state.patch({ problem: explain(error) });
		}
	}
}
