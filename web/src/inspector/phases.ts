// The phases of an exchange, from its moments.

import type { Session } from "../types";

/** A phase, in milliseconds from the session's start. */
export interface Phase {
	name: string;
	start: number;
	duration: number;
	kind: "wait" | "get";
}

type Timed = Pick<Session, "timing" | "duration">;

/** The phases that took place, in order, and the length of the time axis (never 0). A moment that did not come ends no phase. */
export function phasesOf({ timing, duration }: Timed): { phases: Phase[]; total: number } {
	const zero = Date.parse(timing.started);
	const at = (time: string | undefined) => (time ? nanoseconds(time) - nanoseconds(timing.started) + (second(time) - second(timing.started)) : undefined);
	const phases: Phase[] = [];
	const add = (name: string, from: number | undefined, to: number | undefined, kind: Phase["kind"] = "wait") => {
		if (from === undefined || to === undefined || from < 0 || to < from) return;
		phases.push({ name, start: from, duration: to - from, kind });
	};
	if (Number.isNaN(zero)) return { phases, total: 1 };
	const [connect, connected, secured] = [at(timing.connect), at(timing.connected), at(timing.secured)];
	const [sent, head] = [at(timing.request_sent), at(timing.response_head)];
	add("Connect", connect, connected);
	add("TLS", connected, secured);
	const ready = secured ?? connected;
	// A connection that stood before the request was reused, or was made for the tunnel around it.
	add("Send request", Math.max(0, ready ?? 0), sent);
	add("Wait for response", Math.max(0, sent ?? ready ?? 0), head);
	// A duration of 0 after a head is one that nobody knows.
	if (duration > 0) add("Receive", head, Math.max(duration, head ?? 0), "get");
	return { phases, total: Math.max(duration, ...phases.map((phase) => phase.start + phase.duration), 0.001) };
}

/** The whole seconds of an RFC 3339 time, in milliseconds. Date.parse alone would lose what is below a millisecond. */
function second(time: string): number {
	return Math.floor(Date.parse(time) / 1000) * 1000;
}

/** The fraction of the second of an RFC 3339 time, in milliseconds. */
function nanoseconds(time: string): number {
	const fraction = /\.(\d+)/.exec(time)?.[1];
	return fraction ? Number(`0.${fraction}`) * 1000 : 0;
}
