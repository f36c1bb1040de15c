import { type Api, explain } from "../client";
import type { OutboundChange, OutboundSettings, Session } from "../types";
import { Store } from "./store";

export interface OutboundState {
	/** Undefined until they were read. */
	settings: OutboundSettings | undefined;
	problem: string;
	working: boolean;
}

/** The lists of host patterns. */
export type HostList = "passthrough" | "insecure_hosts" | "no_proxy";

/** Outbound is how Millpond reaches servers: what the start set, and what is set here. */
export class Outbound {
	readonly state = new Store<OutboundState>({ settings: undefined, problem: "", working: false });
	readonly #api: Api;

	constructor(api: Api) {
		this.#api = api;
	}

	load = (): Promise<boolean> => this.#attempt(() => this.#api.get<OutboundSettings>("settings"));

	/** Changes what is set here. It reports whether that worked. */
	change(change: OutboundChange): Promise<boolean> {
		return this.#attempt(() => this.#api.patch<OutboundSettings>("settings", change));
	}

	/** Adds a host to a list, or takes it away. What is there by now is asked for first: another dashboard may have changed it. */
	async setHost(list: HostList, host: string, on: boolean): Promise<boolean> {
		await this.load();
		const { settings, problem } = this.state.get();
		if (!settings || problem) return false;
		const others = own(settings[list])
			.map((entry) => entry.host)
			.filter((other) => other !== host);
		return this.change({ [list]: on ? [...others, host] : others });
	}

	async #attempt(call: () => Promise<OutboundSettings>): Promise<boolean> {
		this.state.patch({ working: true });
		try {
			this.state.patch({ settings: await call(), problem: "", working: false });
			return true;
		} catch (error) {
			this.state.patch({ problem: explain(error), working: false });
			return false;
		}
	}
}

/** The entries that were made here, and can be changed here. */
export function own<T extends { from: string }>(list: readonly T[]): T[] {
	return list.filter((entry) => entry.from === "dashboard");
}

/** The host of a session as a pattern: without its port. */
export function patternOf(host: string): string {
	const end = host.lastIndexOf(":");
	return end > host.lastIndexOf("]") && host.indexOf(":") === end ? host.slice(0, end) : host.startsWith("[") ? host.slice(1, host.indexOf("]")) : host;
}

/**
 * What a session tells about its host. `upstreamRefused`: its certificate did not verify, and so there was no exchange; a client that rejects Millpond's own fails
 * after upstream's was taken, and with a TLS version agreed on. `passed`: what went there passed unread.
 */
export function hostState(session: Pick<Session, "state" | "flags" | "tls">): { upstreamRefused: boolean; passed: boolean } {
	const { state, flags, tls } = session;
	return { upstreamRefused: state === "failed" && tls?.certificates === true && !tls.upstream_version, passed: flags.includes("passthrough") };
}
