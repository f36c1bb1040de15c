// The phases of an exchange and of the connection made for it, from its moments.

import type { Session } from "../types";

/** A phase, in milliseconds from the beginning of the time axis. */
export interface Phase {
	name: string;
	start: number;
	duration: number;
	/** Setting the connection up, waiting, receiving. */
	kind: "setup" | "wait" | "get";
}

export interface Phases {
	/** Those that took place, in order. */
	phases: Phase[];
	/** The length of the time axis, never 0. */
	total: number;
	/** Where on the axis the request begins: after the connection that was made ahead of it, whose idle time in between is left out. */
	begin: number;
	/** How long that connection was idle. */
	idle: number;
}

type Timed = Pick<Session, "timing" | "duration">;

/** A moment that did not come begins and ends no phase. */
export function phasesOf({ timing, duration }: Timed): Phases {
	const none = { phases: [], total: 1, begin: 0, idle: 0 };
	if (Number.isNaN(Date.parse(timing.started))) return none;
	const at = (time: string | undefined) => (time ? fraction(time) - fraction(timing.started) + (second(time) - second(timing.started)) : undefined);
	const phases: Phase[] = [];
	const add = (name: string, kind: Phase["kind"], from: number | undefined, to: number | undefined, shift = 0) => {
		if (from === undefined || to === undefined || to < from) return;
		phases.push({ name, start: from + shift, duration: to - from, kind });
	};

	const [connect, resolved, connected] = [at(timing.connect), at(timing.resolved), at(timing.connected)];
	const [hello, secured, clientSecured] = [at(timing.client_hello), at(timing.secured), at(timing.client_secured)];
	const ready = clientSecured ?? secured ?? connected;
	const ahead = connect !== undefined && ready !== undefined && connect < 0 && ready <= 0;
	const begin = ahead ? ready - connect : 0;
	const idle = ahead ? -ready : 0;
	add("Look up name", "setup", connect, resolved, begin + idle);
	add("Connect", "setup", resolved ?? connect, connected, begin + idle);
	add("TLS with upstream", "setup", hello ?? connected, secured, begin + idle);
	add("TLS with client", "setup", secured, clientSecured, begin + idle);

	const [sent, head] = [at(timing.request_sent), at(timing.response_head)];
	const first = at(timing.first_byte) ?? head;
	const from = Math.max(0, ready ?? 0); // a connection that stood before takes nothing from the request
	add("Send request", "wait", from, sent, begin);
	add("Wait for response", "wait", Math.max(from, sent ?? 0), first, begin);
	// A duration of 0 after a head is one that nobody knows.
	if (duration > 0) add("Receive", "get", first, Math.max(duration, first ?? 0), begin);
	return { phases, total: Math.max(begin + duration, ...phases.map((phase) => phase.start + phase.duration), 0.001), begin, idle };
}

/** The whole seconds of an RFC 3339 time, in milliseconds. Date.parse alone would lose what is below a millisecond. */
function second(time: string): number {
	return Math.floor(Date.parse(time) / 1000) * 1000;
}

/** The fraction of the second of an RFC 3339 time, in milliseconds. */
function fraction(time: string): number {
	const digits = /\.(\d+)/.exec(time)?.[1];
	return digits ? Number(`0.${digits}`) * 1000 : 0;
}
