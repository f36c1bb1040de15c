// The waterfall: when the sessions in view happened, beside each other.

import type { Summary } from "../types";

/** The time axis of the rows in view: bars are placed on it in per cent. */
export interface Scale {
	/** Stretches of time in which something happened, in milliseconds, in order, without overlap. The gaps between them are left out. */
	busy: { from: number; to: number; at: number }[];
	length: number;
}

export interface Bar {
	kind: "wait" | "get" | "running";
	left: number;
	width: number;
}

/** A gap in which nothing in view happened is drawn as at most this share of the axis. */
const gapShare = 0.04;
/** Sessions that go on for longer than this many times the median end the axis: one hour-long stream must not make dots of the rest. */
const longTimes = 20;

/** The least that receiving is drawn as, in per cent of the axis. */
const leastGet = 4;

const startOf = (row: Summary) => Date.parse(row.started);

export function scaleOf(rows: readonly Summary[]): Scale {
	const durations = rows.map((row) => row.duration).sort((a, b) => a - b);
	const longest = Math.max(50, (durations[Math.floor(durations.length / 2)] ?? 0) * longTimes);
	const spans = rows
		.map((row) => ({ from: startOf(row), to: startOf(row) + Math.max(1, Math.min(row.duration, longest)) }))
		.filter((span) => Number.isFinite(span.from))
		.sort((a, b) => a.from - b.from);
	const merged: { from: number; to: number }[] = [];
	for (const span of spans) {
		const last = merged.at(-1);
		if (last && span.from <= last.to) last.to = Math.max(last.to, span.to);
		else merged.push(span);
	}
	const worked = merged.reduce((sum, span) => sum + span.to - span.from, 0);
	let at = 0;
	let end = merged[0]?.from ?? 0;
	const busy = merged.map((span) => {
		at += Math.min(span.from - end, worked * gapShare);
		const placed = { from: span.from, to: span.to, at };
		at += span.to - span.from;
		end = span.to;
		return placed;
	});
	return { busy, length: Math.max(1, at) };
}

/** Where a moment stands on the axis, in per cent. A moment in a gap stands at the gap's end. */
function placeOf(scale: Scale, time: number): number {
	for (const span of scale.busy) {
		if (time < span.from) return (100 * span.at) / scale.length;
		if (time <= span.to) return (100 * (span.at + time - span.from)) / scale.length;
	}
	return 100;
}

/** The bars of one row: waiting for the first byte, then receiving. */
export function barsOf(row: Summary, scale: Scale): Bar[] {
	const start = startOf(row);
	if (!Number.isFinite(start)) return [];
	const left = placeOf(scale, start);
	const first = row.first_byte > 0 ? placeOf(scale, start + Math.min(row.first_byte, row.duration)) : undefined;
	const right = Math.max(left, placeOf(scale, start + row.duration));
	const getting = row.state === "open" ? "running" : "get";
	if (first === undefined) return [{ kind: row.state === "open" ? "running" : "wait", left, width: right - left }];
	if (row.duration <= row.first_byte) return [{ kind: "wait", left, width: right - left }];
	// Where the axis ends before the session does, some of the receiving is still to be seen.
	const turn = Math.min(first, right - Math.min(leastGet, (right - left) / 2));
	return [
		{ kind: "wait", left, width: turn - left },
		{ kind: getting, left: turn, width: right - turn },
	];
}
