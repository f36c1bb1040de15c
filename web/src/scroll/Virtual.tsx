import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { useStore } from "../state/store";
import { visibleRows } from "./geometry";
import type { Scroller } from "./scroller";
import styles from "./Virtual.module.css";

/**
 * Paints the rows of a Scroller that are in view. The layer that holds them stays with the viewport, and each row stands where the position
 * says, so neither its height nor the rows' places ever exceed what a browser can hold. `renderRow` sets its own height, and puts itself `top` pixels below the layer's top.
 */
export function Virtual(props: {
	scroller: Scroller;
	renderRow: (index: number, top: number) => ReactNode;
	onKeyDown?: (event: KeyboardEvent) => void;
	label?: string;
	/** A tab stop of its own. Browsers make one of every scroller, unless they are told not to: a grid is one stop already. */
	focusable?: boolean;
	className?: string | undefined;
	role: string;
}) {
	const { scroller } = props;
	const outer = useRef<HTMLDivElement>(null);
	useEffect(() => (outer.current ? scroller.attach(outer.current) : undefined), [scroller]);
	const view = useStore(scroller.view);
	const { from, to } = visibleRows(view, view.position);
	const rows: ReactNode[] = [];
	for (let index = from; index < to; index++) rows.push(props.renderRow(index, index * view.rowHeight - view.position));
	return (
		// oxlint-disable-next-line jsx-a11y/no-static-element-interactions -- whoever listens to keys gives a role
		<div
			ref={outer}
			className={`${styles.outer} ${props.className ?? ""}`}
			tabIndex={props.focusable ? 0 : -1}
			role={props.role}
			aria-label={props.label}
			onKeyDown={props.onKeyDown}
		>
			<div className={styles.track} role="presentation">
				<div className={styles.layer} style={{ height: view.viewport }} role="presentation">
					{rows}
				</div>
			</div>
		</div>
	);
}
