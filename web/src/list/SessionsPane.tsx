import { type KeyboardEvent, useEffect, useMemo } from "react";
import { Virtual } from "../scroll/Virtual";
import { visibleRows } from "../scroll/geometry";
import type { Dashboard } from "../state/dashboard";
import { useStore } from "../state/store";
import { Deletions } from "./Deletions";
import { Empty } from "./Empty";
import { Row } from "./Row";
import styles from "./SessionsPane.module.css";
import { scaleOf } from "./waterfall";

const columns = ["#", "Status", "Method", "Host", "Path", "Type", "Size", "Time", "Waterfall"];
const numeric = new Set(["#", "Size", "Time"]);

/** The list of sessions. Focus stays on the grid; the selected row is its active descendant. */
export function SessionsPane({ dashboard }: { dashboard: Dashboard }) {
	const { list } = dashboard;
	const state = useStore(list.state);
	const view = useStore(list.scroller.view);
	const traffic = useStore(dashboard.traffic);
	const status = useStore(dashboard.status);
	const store = traffic?.store ?? status?.store;
	const inView = visibleRows(view, view.position);
	const { rows, first, from } = state;
	const scale = useMemo(
		() => scaleOf(rows.slice(Math.max(0, inView.from + first - from), Math.max(0, inView.to + first - from))),
		[rows, inView.from, inView.to, first, from],
	);
	useEffect(() => {
		// Its keys work at once, unless something else has the focus. A ring around all of it would be loud before a key is touched.
		if (document.activeElement === document.body) document.getElementById("sessions")?.focus({ focusVisible: false } as FocusOptions);
	}, []);
	const { selected } = state;
	const scrolls = view.rows * view.rowHeight > view.viewport;
	const empty = state.ready && state.total === 0 && !state.scanning;
	return (
		<section className={styles.pane} aria-label="Sessions">
			{store?.problem && (
				<p className={styles.problem} role="alert">
					<b>Not recording:</b> {store.problem}. Traffic still passes.
				</p>
			)}
			<Deletions dashboard={dashboard} />
			<div
				id="sessions"
				className={`framed ${styles.grid} ${scrolls ? styles.scrolls : ""} ${empty ? styles.nothing : ""}`}
				role="grid"
				aria-label="Sessions"
				aria-rowcount={state.total + 1}
				aria-colcount={columns.length}
				aria-activedescendant={selected ? `session-${selected.id}` : undefined}
				tabIndex={0}
				onKeyDown={(event) => onKey(event, dashboard)}
			>
				<div className={`${styles.row} ${styles.head}`} role="row" aria-rowindex={1}>
					{columns.map((name) => (
						<span key={name} role="columnheader" className={numeric.has(name) ? "num" : undefined}>
							{name}
						</span>
					))}
				</div>
				{!empty && (
					<Virtual
						scroller={list.scroller}
						role="rowgroup"
						className={styles.rows}
						renderRow={(index, top) => {
							const row = list.rowAt(index);
							return (
								<Row
									key={first + index}
									row={row}
									index={index}
									top={top}
									scale={scale}
									selected={row !== undefined && row.id === selected?.id}
									onSelect={() => {
										list.select(index);
										dashboard.inspect();
									}}
								/>
							);
						}}
					/>
				)}
			</div>
			{empty && <Empty dashboard={dashboard} />}
			{!view.atEnd && state.total > 0 && (
				<button type="button" className={`quiet ${styles.newest}`} onClick={() => list.scroller.scrollToEnd()}>
					↓ Newest
				</button>
			)}
		</section>
	);
}

function onKey(event: KeyboardEvent, dashboard: Dashboard): void {
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	const { list } = dashboard;
	const moves: Record<string, () => void> = {
		ArrowDown: () => list.move(1),
		ArrowUp: () => list.move(-1),
		PageDown: () => list.move(list.scroller.page()),
		PageUp: () => list.move(-list.scroller.page()),
		Home: () => list.select(0),
		End: () => list.select(Number.POSITIVE_INFINITY),
		Enter: () => {
			if (!list.state.get().selected) list.move(0);
			dashboard.inspect();
		},
	};
	const move = moves[event.key];
	if (!move) return;
	event.preventDefault();
	move();
}
