// What states and flags mean, in words.

import { formatBytes, formatCount, formatDay, formatDuration, formatNumberOf, formatTime } from "./format";
import { readable } from "./text/wire";
import type { Deletion, GoAway, Message, Retention, Session, Summary } from "./types";

/** How a session ended, or that it has not. */
export const stateWords: Record<Summary["state"], string> = {
	open: "open",
	done: "done",
	client_aborted: "the client left",
	upstream_aborted: "the server broke off",
	interrupted: "interrupted",
	failed: "failed",
};

/** What a state means for what was captured. */
export const stateMeaning: Record<Summary["state"], string> = {
	open: "The exchange is still going on.",
	done: "Both sides were relayed whole.",
	client_aborted: "The client left before the end. What had passed by then is here.",
	upstream_aborted: "The server broke off before the end, and the client saw a broken body too. What had passed by then is here.",
	interrupted: "Millpond itself was ended, or the backup was made, before this session ended. What had been written by then is here.",
	failed: "No exchange took place.",
};

const flagMeanings: Record<string, [word: string, meaning: string]> = {
	host_differs: ["other Host", "The Host field is not what was asked of the proxy."],
	ambiguous_framing: ["ambiguous framing", "The message's length could be read in two ways, or bytes came after the response: it may mean different things to different programs."],
	odd_name: ["odd field name", "A field's name is none that HTTP allows. It passed as it is; other programs may refuse it or read another name."],
	modified: ["modified", "A rule changed what was sent on. What was received is kept beside it."],
	moved: ["moved", "A rule sent the request to another host."],
	answered: ["answered by a rule", "A rule answered, and the server was not asked."],
	insecure_upstream: ["certificate not verified", "The server's certificate does not verify, and was accepted all the same."],
	tunnel: ["tunnel", "The bytes passed through unread. The request body is what the client sent, the response body what the server sent."],
	upgraded: ["upgraded", "The exchange became another protocol after its head."],
	passthrough: ["passed unread", "The host is set to pass unread: the bytes are as they were, and only the two ends can read them."],
	reverse: ["reverse", "It came to a listener that forwards to one server. Host became that server's; what was received is kept beside it."],
	cut: ["capture cut", "Capture of a body stopped before the body did. The traffic itself went on."],
};

/** Who did something on a relayed connection. */
export const partyWords: Record<GoAway["by"], string> = { client: "the client", upstream: "upstream", proxy: "Millpond" };

/** How the receiver of a body finds its end. */
export const framingWords: Record<NonNullable<Message["framing"]>, string> = {
	none: "",
	content_length: "with Content-Length",
	chunked: "chunked",
	close: "ended by the connection",
	http2: "",
};

/** What a body's hash is of: what was sent, or only what is kept of it. */
export function hashWord(body: Pick<Message["body"], "complete">): string {
	return body.complete ? "sha256" : "sha256 of the bytes kept";
}

const usual = new Set(["reused", "upstream_proxy", "websocket"]);

/** The flags that tell of something unusual. That a connection had served before, that there is an upstream proxy, and which protocol followed, is usual. */
export function unusual(flags: readonly string[]): string[] {
	return flags.filter((flag) => !usual.has(flag));
}

/** A flag as a short word and a sentence. An unknown flag is its own word. */
export function flagWords(flag: string): { word: string; meaning: string } {
	const [word, meaning] = flagMeanings[flag] ?? [flag.replaceAll("_", " "), ""];
	return { word, meaning };
}

/** The reason phrase of an HTTP/1 response's head; HTTP/2 has none. */
export function reasonOf(head: string): string {
	const line = head.slice(0, Math.max(0, head.indexOf("\n"))).trimEnd();
	return /^HTTP\/\d\.\d \d{3} ?(.*)$/.exec(readable(line))?.[1] ?? "";
}

/** A session's URL in parts, for showing the host stronger than the rest. A tunnel has a host only. */
export function urlParts(session: Pick<Summary, "scheme" | "host" | "path">): { scheme: string; host: string; path: string } {
	const scheme = session.scheme === "tcp" || session.scheme === "" ? "" : `${session.scheme}://`;
	return { scheme, host: readable(session.host), path: readable(session.path) };
}

/** Whether nobody knows when a session ended: Millpond itself was ended before it, and says 0. */
export function endUnknown(session: Pick<Summary, "state" | "duration">): boolean {
	return session.state === "interrupted" && session.duration === 0;
}

/** What happened, in one sentence a person would say. */
export function story(session: Session): string {
	const where = session.host || "the server";
	if (session.state === "failed") return `${session.method || "The request"} to ${where} failed.`;
	const tunnel = session.flags.includes("tunnel");
	if (tunnel) return session.state === "open" ? `A tunnel to ${where} is open.` : `A tunnel to ${where} was open, and ended.`;
	if (session.status === 0) {
		return session.state === "open" ? `${where} was asked, and has not answered yet.` : `${where} was asked, and did not answer.`;
	}
	if (session.state === "open") return `${where} answered ${session.status}, and its answer is still arriving.`;
	if (session.state === "done") return `${where} answered ${session.status}, and everything arrived.`;
	return `${where} answered ${session.status}, and the exchange ended early.`;
}

/** What the limits on how much is kept are, and what they do now. */
export function limitsOf(retention: Retention): string {
	const { max_bytes, max_age, max_sessions, next_started, stuck, short } = retention;
	const limits = [
		max_bytes ? `up to ${formatBytes(max_bytes)}` : "",
		max_age ? `for ${formatDuration(max_age * 1000)}` : "",
		max_sessions ? `up to ${formatNumberOf(max_sessions, "session")}` : "",
	].filter(Boolean);
	if (limits.length === 0) return "All sessions are kept.";
	const parts = [`Sessions are kept ${limits.join(", ")}: the oldest go first, pinned and shared ones stay.`];
	if (stuck) parts.push("The limit is exceeded and nothing may go: what is left is pinned, shared, open or newest.");
	else if (next_started) parts.push(`Next would go one of ${`${formatDay(next_started)} ${formatTime(next_started).slice(0, 5)}`.trim()}.`);
	if (short) parts.push("The disk cannot hold as much as the limit: it is full before.");
	return parts.join(" ");
}

/** How far a deletion of many sessions is, or what came of it. */
export function deletionWords({ filter, done, total, running, problem, ended, cancelled }: Deletion): string {
	const which = filter === "" ? "" : ` that match “${filter.length > 20 ? `${filter.slice(0, 20)}…` : filter}”`;
	const were = done === 1 ? "was" : "were";
	if (problem) return `Not all sessions${which} were deleted, but ${formatCount(done)}: ${problem}`;
	if (cancelled && total !== undefined) return `Cancelled: ${formatCount(done)} of ${formatNumberOf(total, "session")} ${were} deleted`;
	if (cancelled) return `Cancelled: ${formatCount(done)} of the sessions${which} ${were} deleted`;
	if (ended) return `${formatNumberOf(done, "session")}${done === 1 ? which.replace("match", "matches") : which} ${were} deleted`;
	if (!running) return `Sessions${which} are deleted next`;
	return total === undefined ? `Deleting sessions${which}: ${formatCount(done)} so far` : `Deleting ${formatNumberOf(total, "session")}: ${formatCount(done)} so far`;
}
