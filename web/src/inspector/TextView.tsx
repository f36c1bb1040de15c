import { useEffect, useMemo, useRef, useState } from "react";
import { formatBytes, formatCount } from "../format";
import { Virtual } from "../scroll/Virtual";
import { useStore } from "../state/store";
import { TextDocument } from "../text/document";
import { isJson } from "../text/charset";
import { tooLongToIndent } from "../text/json";
import { rowsOf, rowText } from "../text/rows";
import styles from "./BodyView.module.css";
import { GoTo } from "./GoTo";
import { type BodyViewProps, onKey } from "./HexView";
import { useColumns } from "./useColumns";

/** A body as text: in rows that are painted only where they are seen, and in pages beyond 4 MiB. */
export function TextView({ source, contentType, tools, download, sha256 }: BodyViewProps) {
	const frame = useRef<HTMLDivElement>(null);
	const columns = useColumns(frame);
	const document = useMemo(() => new TextDocument(source, contentType), [source, contentType]);
	useEffect(() => document.start(), [document]);
	const { size, growing, problem: sourceProblem } = useStore(source.state);
	const { text, indented, page, pages, from, to, charset, problem } = useStore(document.state);
	const [indent, setIndent] = useState(true);
	const unindented = text !== undefined && isJson(contentType) && tooLongToIndent(text, pages);
	const shown = (indent ? indented : undefined) ?? text;
	// Line numbers take a fixed gutter; pages have none, because nobody counted the lines before them.
	const gutter = pages === 1 ? 7 : 0;
	const rows = useMemo(
		() => (shown === undefined || columns === 0 || (shown === "" && sourceProblem) ? undefined : rowsOf(shown, Math.max(8, columns - gutter))),
		[shown, columns, gutter, sourceProblem],
	);
	const { scroller } = document;
	useEffect(() => scroller.setRows(rows?.starts.length ?? 0), [scroller, rows]);
	return (
		<>
			<div className={styles.tools}>
				{tools}
				{indented !== undefined && (
					<span className="seg" role="group" aria-label="Lay out JSON">
						<button type="button" aria-pressed={indent} onClick={() => setIndent(true)}>
							Indented
						</button>
						<button type="button" aria-pressed={!indent} onClick={() => setIndent(false)}>
							As sent
						</button>
					</span>
				)}
				<span className="grow" />
				{pages > 1 && <GoTo size={size} growing={growing} onGo={(offset) => document.showOffset(offset)} />}
				{download}
			</div>
			<div ref={frame} className={styles.view}>
				{rows && (
					<Virtual
						scroller={scroller}
						focusable
						role="region"
						label="Text of the body"
						onKeyDown={(event) => {
							const view = scroller.view.get();
							const by = { PageDown: view.atEnd ? 1 : 0, " ": view.atEnd ? 1 : 0, PageUp: view.position === 0 ? -1 : 0 }[event.key];
							if (!by || pages === 1) return onKey(event, scroller);
							event.preventDefault();
							document.show(page + by);
						}}
						renderRow={(row, y) => (
							<div key={row} className={styles.textRow} style={{ transform: `translateY(${y}px)` }}>
								{gutter > 0 && (
									<span className={styles.number} style={{ width: `${gutter - 2}ch` }}>
										{rows.lines[row] || ""}
									</span>
								)}
								{rowText(rows, row)}
							</div>
						)}
					/>
				)}
			</div>
			<div className={styles.where}>
				{problem && problem !== sourceProblem && <span className="bad">{problem}</span>}
				{pages > 1 ? (
					<>
						<span>
							bytes {formatCount(from)}–{formatCount(to)} of {formatCount(size)}
						</span>
						<span>
							<button type="button" className="quiet" disabled={page === 0} onClick={() => document.show(0)} aria-label="First page">
								⇤
							</button>{" "}
							<button type="button" className="quiet" disabled={page === 0} onClick={() => document.show(page - 1)} aria-label="Previous page">
								←
							</button>{" "}
							page {formatCount(page + 1)} of {formatCount(pages)}{" "}
							<button type="button" className="quiet" disabled={page >= pages - 1} onClick={() => document.show(page + 1)} aria-label="Next page">
								→
							</button>{" "}
							<button type="button" className="quiet" disabled={page >= pages - 1} onClick={() => document.show(pages - 1)} aria-label="Last page">
								⇥
							</button>
						</span>
					</>
				) : (
					<span>
						{formatCount(rows?.lineCount ?? 0)} {rows?.lineCount === 1 ? "line" : "lines"}, {formatBytes(size)}
						{growing && " so far"}
					</span>
				)}
				{charset && <span>{charset}</span>}
				{unindented && <span>indented up to 1 MiB; shown as sent</span>}
				{sha256 && (
					<span className={styles.hash} title={sha256}>
						sha256 {sha256}
					</span>
				)}
			</div>
		</>
	);
}
