// Limits on how much is kept, as people write them: what they are, and what a new one would delete.

import { formatBytes, formatNumberOf } from "./format";
import type { OutboundSettings, StoreStatus } from "./types";

export type Limit = "max_bytes" | "max_age" | "max_sessions";

/** max_bytes where nothing sets it. The others have none then. */
const defaultMaxBytes = "20GiB";

const powers = ["", "k", "m", "g", "t", "p"];

const seconds: Record<string, number> = { w: 7 * 86400, d: 86400, h: 3600, m: 60, s: 1 };

/** A limit as a number: bytes, seconds or sessions. Infinity is none; NaN what only the server can read, or refuse. */
export function limitOf(limit: Limit, text: string): number {
	const written = text.trim().toLowerCase();
	if (written === "none") return Number.POSITIVE_INFINITY;
	if (written === "") return limit === "max_bytes" ? limitOf(limit, defaultMaxBytes) : Number.POSITIVE_INFINITY;
	if (limit === "max_sessions") return /^\d+$/.test(written) ? Number(written) : Number.NaN;
	if (limit === "max_bytes") {
		const [, number, prefix = "", binary] = /^(\d*\.?\d+) *(?:([kmgtp]?)(i?)b)?$/.exec(written) ?? [];
		return number === undefined ? Number.NaN : Number(number) * (binary ? 1024 : 1000) ** powers.indexOf(prefix);
	}
	if (!/^(\d*\.?\d+[wdhms])+$/.test(written)) return Number.NaN;
	let sum = 0;
	for (const [, number, unit] of written.matchAll(/(\d*\.?\d+)([wdhms])/g)) sum += Number(number) * (seconds[unit ?? ""] ?? 0);
	return sum;
}

/** A limit as it is shown: a size in the units of all other sizes. */
export function limitText(limit: Limit, text: string): string {
	const number = limitOf(limit, text);
	return limit === "max_bytes" && Number.isFinite(number) ? formatBytes(number) : text;
}

/** What a new limit deletes at once, as a sentence; empty where it deletes nothing, as far as the status tells. */
export function lossOf(limit: Limit, text: string, settings: OutboundSettings, store: StoreStatus | undefined, now: number): string {
	const to = limitOf(limit, text);
	if (!store || store.sessions === 0 || !(to < limitOf(limit, settings[limit].value))) return "";
	const { used, next_started } = store.retention;
	const stay = "now, for good; pinned and shared ones stay.";
	switch (limit) {
		case "max_sessions":
			return to < store.sessions ? `The oldest ${formatNumberOf(store.sessions - to, "session")} are deleted ${stay}` : "";
		case "max_bytes":
			return to < used ? `The oldest sessions, some ${formatBytes(used - to)} of ${formatBytes(used)}, are deleted ${stay}` : "";
		case "max_age":
			// It ended after it began: what began within the limit ended within it.
			return next_started && Date.parse(next_started) >= now - to * 1000 ? "" : `Sessions that ended longer ago than ${text.trim()} are deleted ${stay}`;
	}
}
