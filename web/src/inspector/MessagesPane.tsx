import { type KeyboardEvent, useEffect, useMemo } from "react";
import type { Api } from "../client";
import { formatBytes, formatNumberOf, formatTime } from "../format";
import { Virtual } from "../scroll/Virtual";
import { visibleRows } from "../scroll/geometry";
import { MessagePages } from "../state/messages";
import { useStore } from "../state/store";
import type { Messages, Session, StreamMessage } from "../types";
import styles from "./MessagesPane.module.css";
import { PayloadView } from "./PayloadView";

/** The messages of a WebSocket, or the events of an event stream, as they come; the selected one below them. */
export function MessagesPane({ api, session, messages }: { api: Api; session: Session; messages: Messages }) {
	const pages = useMemo(() => new MessagePages(api, session.id), [api, session.id]);
	useEffect(() => pages.start(), [pages]);
	useEffect(() => pages.setCount(messages.count), [pages, messages.count]);
	const { selected, problem } = useStore(pages.state);
	useStore(pages.version);
	const view = useStore(pages.scroller.view);
	const seen = visibleRows(view, view.position);
	useEffect(() => pages.want(seen.from, seen.to), [pages, seen.from, seen.to]);
	// The selected message stays in view when its payload takes half of the room.
	const chosen = selected?.number;
	const { viewport } = view;
	useEffect(() => {
		if (chosen !== undefined && viewport > 0) pages.scroller.reveal(chosen);
	}, [pages, chosen, viewport]);
	const one = messages.kind === "events" ? "event" : "message";
	const open = session.state === "open";
	return (
		<div className={`${styles.pane} ${selected ? styles.split : ""}`}>
			<div className={styles.upper}>
				{messages.lost?.map((why) => (
					<p key={why} className={styles.lost} role="note">
						{why[0]?.toUpperCase()}
						{why.slice(1)}. The bytes themselves are in the body.
					</p>
				))}
				{problem && (
					<p className={styles.lost} role="alert">
						{problem}
					</p>
				)}
				{messages.count === 0 ? (
					<p className={styles.nothing}>{open ? `No ${one} has come yet.` : `There was no ${one}.`}</p>
				) : (
					<div
						id="messages"
						className={`framed ${styles.grid}`}
						role="grid"
						aria-label={one === "event" ? "Events" : "Messages"}
						aria-rowcount={messages.count}
						aria-activedescendant={selected ? `message-${selected.number}` : undefined}
						tabIndex={0}
						onKeyDown={(event) => onKey(event, pages)}
					>
						<Virtual
							scroller={pages.scroller}
							role="rowgroup"
							renderRow={(index, top) => (
								<Row key={index} index={index} top={top} message={pages.at(index)} selected={selected?.number === index} onSelect={() => pages.select(index)} />
							)}
						/>
					</div>
				)}
				<div className={styles.where}>
					<span>
						{formatNumberOf(messages.count, one)}
						{open && " so far"}
					</span>
					{messages.compressed && <span>permessage-deflate</span>}
					<span className="grow" />
					{!view.atEnd && (
						<button type="button" className="quiet" onClick={() => pages.scroller.scrollToEnd()}>
							↓ Newest
						</button>
					)}
				</div>
			</div>
			{selected && <PayloadView key={selected.number} api={api} session={session.id} message={selected} onClose={() => pages.deselect()} />}
		</div>
	);
}

/** What a row says of a message beside its preview. */
export function messageNote(message: StreamMessage): string {
	const notes = [
		message.type === "event" ? message.event : message.type === "text" ? "" : message.type,
		message.code ? String(message.code) : "",
		message.broken ? "broken off" : "",
		message.problem ? "not decoded" : "",
	];
	return notes.filter(Boolean).join(" ");
}

function Row(props: { index: number; top: number; message: StreamMessage | undefined; selected: boolean; onSelect: () => void }) {
	const { index, message, selected } = props;
	const place = { transform: `translateY(${props.top}px)` };
	if (!message) return <div className={styles.row} style={place} role="row" aria-rowindex={index + 1} />;
	const sent = message.side === "request";
	const note = messageNote(message);
	return (
		// The grid holds the focus and hears the keys; a row only hears the pointer.
		<div
			id={`message-${message.number}`}
			className={`${styles.row} ${selected ? styles.selected : ""} ${message.broken || message.problem ? styles.bad : ""}`}
			style={place}
			role="row"
			aria-rowindex={index + 1}
			aria-selected={selected}
			onMouseDown={(event) => {
				if (event.button !== 0) return;
				event.preventDefault();
				document.getElementById("messages")?.focus();
				props.onSelect();
			}}
		>
			<span className={sent ? styles.sent : styles.came} role="gridcell" aria-label={sent ? "from the client" : "from the server"}>
				{sent ? "↑" : "↓"}
			</span>
			<span className="num dim" role="gridcell">
				{formatTime(message.time)}
			</span>
			<span className="data" role="gridcell" title={message.problem || message.preview}>
				{note && <span className={styles.note}>{note}</span>}
				{message.pending ? <span className="dim">being decompressed…</span> : message.preview}
			</span>
			<span className="num dim" role="gridcell">
				{formatBytes(message.decoded_size ?? message.size)}
			</span>
		</div>
	);
}

function onKey(event: KeyboardEvent, pages: MessagePages): void {
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	const moves: Record<string, () => void> = {
		ArrowDown: () => pages.move(1),
		ArrowUp: () => pages.move(-1),
		PageDown: () => pages.move(pages.scroller.page()),
		PageUp: () => pages.move(-pages.scroller.page()),
		Home: () => pages.select(0),
		End: () => pages.select(Number.POSITIVE_INFINITY),
		Enter: () => pages.move(0),
		Escape: () => pages.deselect(),
	};
	const move = moves[event.key];
	if (!move || (event.key === "Escape" && !pages.state.get().selected)) return;
	event.preventDefault();
	event.stopPropagation();
	move();
}
