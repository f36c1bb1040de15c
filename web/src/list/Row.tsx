import { formatBytes, formatCount, formatDurationShort, formatLarger, shortType } from "../format";
import { readable } from "../text/wire";
import { Pin } from "../ui/Pin";
import type { Summary } from "../types";
import { endUnknown, stateWords } from "../words";
import styles from "./SessionsPane.module.css";
import { barsOf, type Scale } from "./waterfall";

/** A row shows so much of a path, in characters; the inspector shows all. */
const longestPath = 500;

export interface RowProps {
	/** Undefined while it is on its way: the row keeps its place. */
	row: Summary | undefined;
	index: number;
	top: number;
	scale: Scale;
	selected: boolean;
	onSelect: () => void;
}

export function Row({ row, index, top, scale, selected, onSelect }: RowProps) {
	const place = { transform: `translateY(${top}px)` };
	if (!row) return <div className={`${styles.row} ${styles.line}`} style={place} role="row" aria-rowindex={index + 2} />;
	const failed = row.state !== "open" && row.state !== "done";
	const path = readable(row.path.slice(0, longestPath));
	const where = path || (row.flags.includes("tunnel") && <span className="dim"> tunnel</span>);
	return (
		// The grid holds the focus and hears the keys; a row only hears the pointer.
		<div
			id={`session-${row.id}`}
			className={`${styles.row} ${styles.line} ${failed ? styles.bad : ""} ${selected ? styles.selected : ""}`}
			style={place}
			role="row"
			aria-rowindex={index + 2}
			aria-selected={selected}
			onMouseDown={(event) => {
				if (event.button !== 0) return;
				event.preventDefault();
				document.getElementById("sessions")?.focus();
				onSelect();
			}}
		>
			<span className="num dimmer" role="gridcell">
				{formatCount(row.id)}
			</span>
			<span className={`data ${statusClass(row)}`} role="gridcell">
				{statusText(row)}
			</span>
			<span className="data" role="gridcell">
				{row.method}
			</span>
			<span role="gridcell" title={row.host}>
				{row.host}
			</span>
			<span role="gridcell" title={row.note ? `${row.host}${path}\nNote: ${firstWords(row.note)}` : row.host + path}>
				{row.pinned && <Pin label="pinned" />}
				<span className={styles.inlineHost}>{row.host}</span>
				{where}
				{failed && (
					<span className={styles.why}>
						{where ? " · " : " "}
						{row.error || stateWords[row.state]}
					</span>
				)}
			</span>
			<span className="dim" role="gridcell" title={row.content_type}>
				{row.flags.includes("websocket") ? "websocket" : shortType(row.content_type)}
			</span>
			<span className="num" role="gridcell" title={`${formatBytes(row.request_bytes)} sent, ${formatBytes(row.response_bytes)} received`}>
				{formatLarger(row.request_bytes, row.response_bytes)}
			</span>
			<span className="num" role="gridcell">
				{endUnknown(row) ? "—" : formatDurationShort(row.duration)}
			</span>
			<span className={styles.waterfall} role="gridcell" aria-hidden="true">
				{barsOf(row, scale).map((bar) => (
					<b key={bar.kind} className={styles[bar.kind]} style={{ left: `${bar.left}%`, width: `${bar.width}%` }} />
				))}
			</span>
		</div>
	);
}

function firstWords(note: string): string {
	return note.length > 80 ? `${note.slice(0, 80)}…` : note;
}

export function statusText(row: Summary): string {
	if (row.status > 0) return String(row.status);
	return row.state === "open" ? "…" : "—";
}

/** The colour of a session: what is still going on, then what broke, then the status. */
export function statusClass(row: Summary): string {
	if (row.state === "open") return "sl";
	if (row.state !== "done") return "s5";
	const hundreds = Math.floor(row.status / 100);
	return hundreds >= 3 && hundreds <= 5 ? `s${hundreds}` : "s2";
}
