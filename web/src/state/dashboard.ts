import { type Api, explain, Problem } from "../client";
import type { Annotation, Authority, Deletion, LiveStatus, Status, Summary } from "../types";
import { SessionList } from "./list";
import { Live } from "./live";
import { Outbound } from "./outbound";
import type { Place } from "./place";
import { OpenSession } from "./session";
import { Store } from "./store";

/** Whether the dashboard may be seen: `asking` until the server said so. */
export type Access = "asking" | "given" | "needed" | "refused" | "unreachable";

/** Dashboard is all that the page of the dashboard knows and does. */
export class Dashboard {
	readonly api: Api;
	readonly access = new Store<Access>("asking");
	readonly status = new Store<Status | undefined>(undefined);
	readonly traffic = new Store<LiveStatus | undefined>(undefined);
	readonly live: Live;
	readonly list: SessionList;
	readonly session: OpenSession;
	readonly outbound: Outbound;
	/** Whether the inspector is open. */
	readonly inspecting = new Store(false);
	/** What went wrong with something the user asked for, until the next one. */
	readonly complaint = new Store("");

	constructor(api: Api) {
		this.api = api;
		this.live = new Live({
			connect: () => new WebSocket(api.live()),
			onWindow: (window, filter) => this.list.onWindow(window, filter),
			onInvalid: (filter, why) => this.list.onInvalid(filter, why),
			onSession: (id, session) => this.session.changed(id, session !== undefined),
			onStatus: (status) => this.traffic.set(status),
			mayRetry: () => this.#check(),
		});
		this.list = new SessionList((view) => this.live.show(view));
		this.session = new OpenSession(api, this.live);
		this.outbound = new Outbound(api);
		this.list.state.subscribe(this.#follow);
		this.inspecting.subscribe(this.#follow);
	}

	/** Opens the dashboard, with the token from the address where there was one. An old link is no harm where the cookie still works. */
	async start(token: string): Promise<void> {
		if (token !== "") await this.login(token);
		if (await this.#check()) this.live.start();
	}

	/** Exchanges a token for the cookie. */
	async login(token: string): Promise<void> {
		try {
			await this.api.login(token);
		} catch (error) {
			if (error instanceof Problem) this.access.set("refused");
		}
	}

	/** Asks how Millpond is, which also tells whether we may. A server that cannot be reached may come back. */
	#check = async (): Promise<boolean> => {
		try {
			this.status.set(await this.api.get<Status>("status"));
			this.access.set("given");
			return true;
		} catch (error) {
			if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
				if (this.access.get() !== "refused") this.access.set("needed");
				return false;
			}
			if (this.access.get() === "asking") this.access.set("unreachable");
			return this.access.get() === "given";
		}
	};

	/** Asks again how Millpond is. */
	async refresh(): Promise<void> {
		await this.#check();
	}

	/** Puts a new certificate authority in the place of the one that is given. */
	async replaceAuthority(present: Authority): Promise<Authority> {
		const made = await this.api.post<Authority>("ca", { replaces: present.fingerprint });
		await this.refresh();
		return made;
	}

	inspect(): void {
		this.inspecting.set(true);
	}

	closeInspector(): void {
		this.inspecting.set(false);
	}

	/** Where the dashboard is, or is on its way to. */
	place(): Place {
		const { selected } = this.list.state.get();
		return { filter: this.list.filter.get().text, session: this.list.sought ?? selected?.id, open: this.inspecting.get() };
	}

	goTo(place: Place): void {
		if (place.filter !== this.list.filter.get().text) this.list.setFilter(place.filter);
		if (place.session === undefined) this.list.unselect();
		else this.list.find(place.session);
		this.inspecting.set(place.open);
	}

	/** The inspector shows the selected session while it is open. */
	#follow = (): void => {
		const { selected } = this.list.state.get();
		if (this.inspecting.get() && selected) this.session.open(selected.id);
		else this.session.close();
	};

	/** Deletes a session. Where it is the selected one, the one that takes its place is selected. */
	async deleteSession(id: number): Promise<void> {
		await this.attempt(async () => {
			await this.api.delete(`sessions/${id}`);
			const { selected, first } = this.list.state.get();
			if (selected?.id !== id) return;
			const next = this.list.rowAt(selected.position - first + 1) ? 1 : -1;
			this.list.move(next);
		});
	}

	/** Puts on a session what people say of it. Rows of the list follow over the live connection. */
	async annotate(id: number, annotation: Annotation): Promise<void> {
		this.session.annotated(await this.api.patch<Summary>(`sessions/${id}`, annotation));
	}

	/** Pins the selected session, or no longer. */
	async togglePin(): Promise<void> {
		const { selected } = this.list.state.get();
		if (!selected) return;
		const { id, session } = this.session.state.get();
		const { pinned } = id === selected.id && session ? session : selected.row;
		await this.attempt(() => this.annotate(selected.id, { pinned: !pinned }));
	}

	/** Begins to delete every session that matches the filter; every one where it is blank. The status tells how far that is. */
	async deleteAll(filter: string): Promise<void> {
		await this.attempt(async () => {
			await this.api.post<Deletion>("deletions", filter.trim() === "" ? { all: true } : { filter });
			this.list.unselect();
			this.closeInspector();
		});
	}

	/** Ends a deletion, or takes the notice of one that ended or failed away. One that ended by itself meanwhile is no mistake. */
	async cancelDeletion(id: number): Promise<void> {
		await this.attempt(async () => {
			try {
				await this.api.delete(`deletions/${id}`);
			} catch (error) {
				if (!(error instanceof Problem && error.status === 404)) throw error;
			}
		});
	}

	/** Does what the user asked for, and says so where it did not work. */
	async attempt(work: () => Promise<void>): Promise<void> {
		this.complaint.set("");
		try {
			await work();
		} catch (error) {
			this.complaint.set(explain(error));
		}
	}
}
