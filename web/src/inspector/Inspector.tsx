import { type KeyboardEvent, useState } from "react";
import type { Api } from "../client";
import { formatDay, formatTime } from "../format";
import { statusClass } from "../list/Row";
import type { Outbound } from "../state/outbound";
import type { OpenSession } from "../state/session";
import { useStore } from "../state/store";
import type { GRPC, Summary } from "../types";
import { Pin } from "../ui/Pin";
import { flagWords, reasonOf, stateWords, unusual, urlParts } from "../words";
import styles from "./Inspector.module.css";
import { MessagePane } from "./MessagePane";
import { MessagesPane } from "./MessagesPane";
import { Overview } from "./Overview";

const always = ["Overview", "Request", "Response"] as const;
type Tab = (typeof always)[number] | "Messages";

interface InspectorProps {
	api: Api;
	session: OpenSession;
	/** What the list knows of it, which is there at once; the rest follows. */
	row: Summary | undefined;
	outbound?: Outbound;
	onPin?: () => void;
	/** Keeps a note. It fails where that did not work. */
	onNote?: (id: number, note: string) => Promise<void>;
	onDelete?: () => void;
	onClose?: () => void;
}

/** Shows one session. */
export function Inspector(props: InspectorProps) {
	const { session, problem, samples, id } = useStore(props.session.state);
	const [wanted, setTab] = useState<Tab>("Overview");
	const tabs: readonly Tab[] = session?.messages ? [...always, "Messages"] : always;
	const tab = tabs.includes(wanted) ? wanted : "Overview";
	const known = session ?? (props.row?.id === id ? props.row : undefined);
	const onTabKey = (event: KeyboardEvent) => {
		const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
		if (by === undefined) return;
		event.preventDefault();
		const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length] as Tab;
		setTab(next);
		document.getElementById(`tab-${next}`)?.focus();
	};
	return (
		<section className={styles.inspector} aria-label={known ? `Session ${known.id}` : "Session"}>
			<div className={styles.title}>{known && <Title known={known} head={session?.response.head ?? ""} tls={session?.tls} grpc={session?.grpc} />}</div>
			<div className={styles.tabs}>
				<div role="tablist" tabIndex={-1} aria-label="Parts of the session" onKeyDown={onTabKey}>
					{tabs.map((name) => (
						<button
							key={name}
							type="button"
							role="tab"
							id={`tab-${name}`}
							aria-selected={tab === name}
							aria-controls="tab-panel"
							tabIndex={tab === name ? 0 : -1}
							onClick={() => setTab(name)}
						>
							{name === "Messages" && session?.messages?.kind === "events" ? "Events" : name}
						</button>
					))}
				</div>
				<span className={styles.acts}>
					{known && props.onPin && (
						<button
							type="button"
							className={`quiet ${styles.act}`}
							aria-pressed={known.pinned}
							aria-keyshortcuts="p"
							title={known.pinned ? "It stays when the oldest sessions are deleted." : "Keep it when the oldest sessions are deleted."}
							onClick={props.onPin}
						>
							<Pin /> <span>{known.pinned ? "Pinned" : "Pin"}</span>
						</button>
					)}
					{known && props.onDelete && (
						<button type="button" className={`quiet ${styles.act}`} aria-label={`Delete session ${known.id}`} aria-keyshortcuts="Delete" onClick={props.onDelete}>
							Delete…
						</button>
					)}
					{props.onClose && (
						<button type="button" className={styles.close} aria-label="Close the inspector" onClick={props.onClose}>
							×
						</button>
					)}
				</span>
			</div>
			<div className={styles.panel} role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`}>
				{problem && (
					<p className={styles.problem} role="alert">
						{problem}
					</p>
				)}
				{session && tab === "Overview" && <Overview api={props.api} session={session} outbound={props.outbound} onNote={props.onNote} />}
				{session?.messages && tab === "Messages" && <MessagesPane key={session.id} api={props.api} session={session} messages={session.messages} />}
				{session && (tab === "Request" || tab === "Response") && (
					<MessagePane
						key={`${session.id} ${tab}`}
						api={props.api}
						session={session}
						side={tab === "Request" ? "request" : "response"}
						onMessages={() => setTab("Messages")}
						samples={tab === "Request" ? samples.request : samples.response}
					/>
				)}
			</div>
		</section>
	);
}

function Title({ known, head, tls, grpc }: { known: Summary; head: string; tls: { client_version?: string } | undefined; grpc: GRPC | undefined }) {
	const { scheme, host, path } = urlParts(known);
	const status = known.status > 0 ? `${known.status} ${reasonOf(head)}`.trim() : "no response";
	return (
		<>
			<h2 className={styles.url}>
				<b>{known.method}</b> {scheme}
				<b>{host}</b>
				{path}
			</h2>
			<div className={styles.facts}>
				<span className={statusClass(known)}>
					{status} · {stateWords[known.state]}
				</span>
				{grpc && <span className={grpc.status === 0 ? "s2" : "s5"}>gRPC {grpc.name}</span>}
				{known.protocol && <span>{known.protocol}</span>}
				<span className="num">
					{known.client}
					{known.upstream && ` → ${known.upstream}`}
				</span>
				{tls?.client_version && <span>{tls.client_version}</span>}
				<span className="num">
					started {formatDay(known.started)} {formatTime(known.started)}
				</span>
				{unusual(known.flags).map((flag) => (
					<span key={flag} className={styles.flag} title={flagWords(flag).meaning}>
						{flagWords(flag).word}
					</span>
				))}
			</div>
			{known.error && <p className={styles.error}>{known.error}</p>}
		</>
	);
}
