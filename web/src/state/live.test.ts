import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { LiveStatus, LiveWindow } from "../types";
import { Live, type Socket } from "./live";

/** A socket whose other end is the test. */
class Wire extends EventTarget implements Pick<Socket, "send" | "close"> {
	sent: Record<string, unknown>[] = [];
	closed = false;
	send(text: string) {
		this.sent.push(JSON.parse(text));
	}
	close() {
		this.closed = true;
	}
	opens() {
		this.dispatchEvent(new Event("open"));
	}
	breaks() {
		this.dispatchEvent(new Event("close"));
	}
	says(message: object) {
		this.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(message) }));
	}
}

let wires: Wire[];
let windows: [LiveWindow, string][];
let refused: [string, string][];
let statuses: LiveStatus[];
let sessions: number[];
let mayRetry: () => Promise<boolean>;
let live: Live;
const wire = () => wires.at(-1) as Wire;
const all = { filter: "", from: 0, count: 80, tail: true };

beforeEach(() => {
	vi.useFakeTimers();
	[wires, windows, refused, statuses, sessions] = [[], [], [], [], []];
	mayRetry = async () => true;
	live = new Live({
		connect: () => {
			wires.push(new Wire());
			return wire();
		},
		onWindow: (window, filter) => windows.push([window, filter]),
		onInvalid: (filter, why) => refused.push([filter, why]),
		onSession: (id) => sessions.push(id),
		onStatus: (status) => statuses.push(status),
		mayRetry: () => mayRetry(),
	});
	live.start();
});
afterEach(() => vi.useRealTimers());

const window = (id: unknown, total = 0) => ({ type: "window", id, first: 0, total, from: 0, rows: [] });

describe("a view", () => {
	test("asked for before the connection stands is sent when it does", () => {
		live.show(all);
		expect(wire().sent).toEqual([]);
		wire().opens();
		expect(wire().sent).toMatchObject([{ type: "view", ...all }]);
		expect(live.connection.get()).toBe("live");
	});

	test("keeps its id while only the window moves, and is not sent twice for the same window", () => {
		wire().opens();
		live.show(all);
		live.show({ ...all });
		live.show({ ...all, from: 40, tail: false });
		expect(wire().sent).toHaveLength(2);
		expect(wire().sent[1]?.id).toBe(wire().sent[0]?.id);
	});

	test("of a new filter is a new one, and answers to the former are dropped once it is answered", () => {
		wire().opens();
		live.show(all);
		const first = wire().sent[0]?.id;
		wire().says(window(first, 9));
		live.show({ ...all, filter: "zip" });
		const second = wire().sent[1]?.id;
		wire().says(window(first, 10));
		wire().says(window(second, 2));
		wire().says(window(first, 11));
		expect(windows.map(([w, filter]) => [w.total, filter])).toEqual([
			[9, ""],
			[10, ""],
			[2, "zip"],
		]);
		expect(wire().sent.at(-1)).toEqual({ type: "close", id: first });
	});

	test("that was superseded before its answer is closed", () => {
		wire().opens();
		live.show(all);
		wire().says(window(wire().sent[0]?.id));
		for (const filter of ["z", "zi", "zip"]) live.show({ ...all, filter });
		const ids = wire().sent.filter((message) => message.type === "view").map((message) => message.id);
		expect(wire().sent.filter((message) => message.type === "close").map((message) => message.id)).toEqual(ids.slice(1, 3));
		wire().says(window(ids[1], 100));
		wire().says(window(ids[3], 3));
		expect(windows.map(([w]) => w.total)).toEqual([0, 3]);
	});

	test("that is refused leaves the former one in place, which goes on moving", () => {
		wire().opens();
		live.show(all);
		const first = wire().sent[0]?.id;
		wire().says(window(first));
		live.show({ ...all, filter: "(" });
		wire().says({ type: "invalid", id: wire().sent[1]?.id, problem: { detail: "a bracket is missing" } });
		expect(refused).toEqual([["(", "a bracket is missing"]]);
		live.show({ ...all, from: 20, tail: false });
		expect(wire().sent.at(-1)).toMatchObject({ id: first, filter: "", from: 20 });
	});
});

describe("a lost connection", () => {
	test("is made again, with the view and the watched sessions", async () => {
		wire().opens();
		live.show({ ...all, filter: "zip" });
		live.watch(7);
		wire().breaks();
		expect(live.connection.get()).toBe("reconnecting");
		await vi.advanceTimersByTimeAsync(250);
		expect(wires).toHaveLength(2);
		wire().opens();
		expect(wire().sent).toMatchObject([
			{ type: "view", filter: "zip" },
			{ type: "watch", id: 7 },
		]);
		expect(wire().sent[0]?.id).not.toBe(wires[0]?.sent[0]?.id);
		expect(live.connection.get()).toBe("live");
	});

	test("is tried again after ever longer waits, at most 5 s", async () => {
		for (const wait of [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]) {
			const before = wires.length;
			wire().breaks();
			await vi.advanceTimersByTimeAsync(wait - 1);
			expect(wires).toHaveLength(before);
			await vi.advanceTimersByTimeAsync(1);
			expect(wires).toHaveLength(before + 1);
		}
	});

	test("is not tried again when there is nobody to talk to any more", async () => {
		mayRetry = async () => false;
		wire().breaks();
		await vi.advanceTimersByTimeAsync(60_000);
		expect(wires).toHaveLength(1);
		expect(live.connection.get()).toBe("ended");
	});

	test("says nothing more, even if its socket does", async () => {
		wire().opens();
		live.show(all);
		const old = wire();
		old.breaks();
		await vi.advanceTimersByTimeAsync(250);
		old.says(window(old.sent[0]?.id, 5));
		expect(windows).toEqual([]);
	});
});

test("only watched sessions are told of, and stop ends everything", () => {
	wire().opens();
	live.watch(3);
	live.watch(3);
	wire().says({ type: "session", id: 3, session: null });
	live.unwatch(3);
	wire().says({ type: "session", id: 3, session: null });
	expect(sessions).toEqual([3]);
	expect(wire().sent.map((m) => m.type)).toEqual(["watch", "unwatch"]);
	live.stop();
	expect(wire().closed).toBe(true);
	expect(live.connection.get()).toBe("ended");
});
