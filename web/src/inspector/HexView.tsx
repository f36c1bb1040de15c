import { type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef } from "react";
import { formatCount } from "../format";
import { asciiOf, formatOffset, hexOf, offsetDigits } from "../hex/hex";
import { Scroller } from "../scroll/scroller";
import { Virtual } from "../scroll/Virtual";
import { visibleRows } from "../scroll/geometry";
import type { BodySource } from "../state/source";
import { useStore } from "../state/store";
import styles from "./BodyView.module.css";
import { GoTo } from "./GoTo";
import { useColumns } from "./useColumns";

const rowHeight = 20;

export interface BodyViewProps {
	source: BodySource;
	contentType: string;
	tools: ReactNode;
	download: ReactNode;
	sha256: string | undefined;
}

/** A body's bytes, by range: any offset of a body of any size, also while it grows. */
export function HexView({ source, tools, download, sha256 }: BodyViewProps) {
	const frame = useRef<HTMLDivElement>(null);
	const columns = useColumns(frame);
	const { size, growing } = useStore(source.state);
	useStore(source.cache.version);
	const digits = offsetDigits(size);
	// An offset, a gap, three columns a byte, and one for its ASCII.
	const width = columns === 0 || columns >= digits * 1.5 + 4 + 16 * 4 + 2 ? 16 : 8;
	const scroller = useMemo(() => new Scroller(rowHeight), []);
	const rows = Math.ceil(size / width);
	const first = useRef(width);
	useEffect(() => {
		// Where the width changes, the same byte stays at the top.
		const top = scroller.view.get().position;
		scroller.setRows(rows);
		if (first.current !== width) scroller.scrollTo((top * first.current) / width);
		first.current = width;
	}, [scroller, rows, width]);
	const view = useStore(scroller.view);
	const seen = visibleRows(view, view.position);
	useEffect(() => {
		// A screen beyond each end, so that a turn of the wheel finds its bytes there.
		const more = (seen.to - seen.from) * width;
		source.cache.want(seen.from * width - more, Math.min(size, seen.to * width + more));
	}, [source, seen.from, seen.to, width, size]);
	const top = Math.min(Math.ceil(view.position / rowHeight) * width, Math.max(0, size - 1));
	return (
		<>
			<div className={styles.tools}>
				{tools}
				<span className="grow" />
				<GoTo size={size} growing={growing} onGo={(offset) => scroller.scrollTo(Math.floor(offset / width) * rowHeight)} />
				{download}
			</div>
			<div ref={frame} className={styles.view}>
				<Virtual
					scroller={scroller}
					focusable
					role="region"
					label="Bytes of the body"
					onKeyDown={(event) => onKey(event, scroller)}
					renderRow={(row, y) => {
						const from = row * width;
						const bytes = source.cache.bytes(from, Math.min(size, from + width));
						return (
							<div key={row} className={styles.hexRow} style={{ transform: `translateY(${y}px)` }}>
								<span className={styles.offset}>{formatOffset(from, digits)}</span>
								{bytes && <span>{hexOf(bytes, width)}</span>}
								{bytes && <span className={styles.ascii}>{asciiOf(bytes)}</span>}
							</div>
						);
					}}
				/>
			</div>
			<div className={styles.where}>
				{source.cache.problem ? <span className="bad">{source.cache.problem}</span> : <span>offset {formatCount(top)}</span>}
				<span>
					of {formatCount(size)} {growing ? "so far" : size === 1 ? "byte" : "bytes"}
				</span>
				{sha256 && (
					<span className={styles.hash} title={sha256}>
						sha256 {sha256}
					</span>
				)}
			</div>
		</>
	);
}

/** Moves a view by keys. The browser's own would move a compressed scrollbar's track, not the content. */
export function onKey(event: KeyboardEvent, scroller: Scroller): void {
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	const page = scroller.page() * rowHeight;
	const moves: Record<string, () => void> = {
		ArrowDown: () => scroller.scrollBy(rowHeight),
		ArrowUp: () => scroller.scrollBy(-rowHeight),
		PageDown: () => scroller.scrollBy(page),
		PageUp: () => scroller.scrollBy(-page),
		" ": () => scroller.scrollBy(event.shiftKey ? -page : page),
		Home: () => scroller.scrollTo(0),
		End: () => scroller.scrollToEnd(),
	};
	const move = moves[event.key];
	if (!move) return;
	event.preventDefault();
	move();
}
