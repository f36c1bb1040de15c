import type { LiveInvalid, LiveSession, LiveStatus, LiveWindow, Summary } from "../types";
import { Store } from "./store";

/** A view's window: which rows of which filter. With `tail` it is the newest `count` rows. */
export interface View {
	filter: string;
	from: number;
	count: number;
	tail: boolean;
}

type Incoming = LiveWindow | LiveInvalid | LiveSession | LiveStatus;

/** The part of a WebSocket that Live uses. */
export type Socket = Pick<WebSocket, "addEventListener" | "send" | "close">;

export interface LiveOptions {
	connect: () => Socket;
	onWindow: (window: LiveWindow, filter: string) => void;
	onInvalid: (filter: string, why: string) => void;
	/** A watched session changed, or was there at first; undefined where it is gone. */
	onSession: (id: number, session: Summary | undefined) => void;
	onStatus: (status: LiveStatus) => void;
	/** Asked after a connection that never opened: false ends the attempts, because there is nobody to talk to any more. */
	mayRetry?: () => Promise<boolean>;
}

export type Connection = "connecting" | "live" | "reconnecting" | "ended";

const firstWait = 250;
const longestWait = 5_000;

/**
 * Live is the connection that brings what changes. It keeps what the app wants to see (one view, some watched sessions) and says it
 * again after each reconnect. Of several views asked for, only the latest counts: answers to former ones are dropped.
 */
export class Live {
	readonly connection = new Store<Connection>("connecting");
	#options: LiveOptions;
	#socket: Socket | undefined;
	#open = false;
	#wait = firstWait;
	#timer: ReturnType<typeof setTimeout> | undefined;
	#view: View | undefined;
	#id = 0;
	/** The view whose windows are shown: it stays while a newer filter has not been answered, or was refused. */
	#shown: { id: number; filter: string } | undefined;
	#watched = new Set<number>();

	constructor(options: LiveOptions) {
		this.#options = options;
	}

	start(): void {
		this.#dial();
	}

	/** Ends the connection for good. */
	stop(): void {
		this.connection.set("ended");
		clearTimeout(this.#timer);
		this.#socket?.close();
		this.#socket = undefined;
		this.#open = false;
	}

	/** Asks for a window. A new filter is a new view; another window of the same filter keeps its positions. */
	show(view: View): void {
		const before = this.#view;
		this.#view = view;
		if (!before || before.filter !== view.filter) {
			// A view that was asked for and never answered is of no use any more.
			if (before && this.#shown?.id !== this.#id) this.#send({ type: "close", id: this.#id });
			this.#id++;
		} else if (before.from === view.from && before.count === view.count && before.tail === view.tail) return;
		this.#sendView();
	}

	watch(id: number): void {
		if (this.#watched.has(id)) return;
		this.#watched.add(id);
		this.#send({ type: "watch", id });
	}

	unwatch(id: number): void {
		if (this.#watched.delete(id)) this.#send({ type: "unwatch", id });
	}

	#dial(): void {
		const socket = this.#options.connect();
		this.#socket = socket;
		let opened = false;
		socket.addEventListener("open", () => {
			if (this.#socket !== socket) return;
			opened = true;
			this.#open = true;
			this.connection.set("live");
			// The server numbers a new connection's views anew, so the view is a new one.
			this.#id++;
			this.#shown = undefined;
			this.#sendView();
			for (const id of this.#watched) this.#send({ type: "watch", id });
		});
		socket.addEventListener("message", (event) => {
			if (this.#socket !== socket) return;
			// Only a server that speaks is back: one that accepts and drops connections is left in peace.
			this.#wait = firstWait;
			this.#receive(JSON.parse(String(event.data)) as Incoming);
		});
		socket.addEventListener("close", () => {
			if (this.#socket === socket) this.#lost(opened);
		});
	}

	#lost(opened: boolean): void {
		this.#socket = undefined;
		this.#open = false;
		this.connection.set("reconnecting");
		const retry = () => {
			if (this.connection.get() === "ended") return;
			this.#timer = setTimeout(() => this.#dial(), this.#wait);
			this.#wait = Math.min(this.#wait * 2, longestWait);
		};
		if (opened || !this.#options.mayRetry) retry();
		else this.#options.mayRetry().then((may) => (may ? retry() : this.connection.set("ended")), retry);
	}

	#sendView(): void {
		const view = this.#view;
		if (!view) return;
		this.#send({ type: "view", id: this.#id, ...view });
	}

	/** The view is answered: the one before it ends. */
	#becomes(view: { id: number; filter: string }): void {
		if (this.#shown && this.#shown.id !== view.id) this.#send({ type: "close", id: this.#shown.id });
		this.#shown = view;
	}

	#send(message: object): void {
		if (this.#open) this.#socket?.send(JSON.stringify(message));
	}

	#receive(message: Incoming): void {
		switch (message.type) {
			case "window":
				if (message.id === this.#id && this.#view) this.#becomes({ id: this.#id, filter: this.#view.filter });
				if (this.#shown && message.id === this.#shown.id) this.#options.onWindow(message, this.#shown.filter);
				break;
			case "invalid":
				if (message.id !== this.#id || !this.#view) break;
				this.#options.onInvalid(this.#view.filter, message.problem.detail ?? message.problem.title ?? "not understood");
				if (this.#shown) {
					this.#id = this.#shown.id;
					this.#view = { ...this.#view, filter: this.#shown.filter };
				}
				break;
			case "session":
				if (this.#watched.has(message.id)) this.#options.onSession(message.id, message.session ?? undefined);
				break;
			case "status":
				this.#options.onStatus(message);
				break;
		}
	}
}
