import { type Api, explain } from "../client";
import type { Certificate, CertificateList } from "../types";
import { Store } from "./store";

export interface CertificatesState {
	/** Upstream's certificate first, then those that lead to a root; undefined until they are there. */
	list: Certificate[] | undefined;
	problem: string;
	/** When they were read, in milliseconds since 1970: what is valid then. */
	now: number;
}

/** CertificateSource reads the certificates of a session's upstream, once they are asked for: they do not change. */
export class CertificateSource {
	readonly state = new Store<CertificatesState>({ list: undefined, problem: "", now: 0 });
	#api: Api;
	#id: number;
	#reading = false;

	constructor(api: Api, id: number) {
		this.#api = api;
		this.#id = id;
	}

	async load(): Promise<void> {
		if (this.#reading || this.state.get().list) return;
		this.#reading = true;
		try {
			const { certificates } = await this.#api.get<CertificateList>(`sessions/${this.#id}/certificates`);
			this.state.set({ list: certificates, problem: "", now: Date.now() });
		} catch (error) {
			this.state.patch({ problem: explain(error) });
		}
		this.#reading = false;
	}
}
