import type { ReactNode } from "react";
import styles from "./Overview.module.css";

/** Names with their values, below a heading. */
export function Facts({ title, children }: { title: string; children: ReactNode }) {
	return (
		<section>
			<h3>{title}</h3>
			<dl className={styles.facts}>{children}</dl>
		</section>
	);
}

/** A name with its value; nothing without a value. */
export function Fact({ name, bad, children }: { name: string; bad?: boolean; children: ReactNode }) {
	if (children === undefined || children === null || children === "" || children === false) return null;
	return (
		<div>
			<dt>{name}</dt>
			<dd className={bad ? "bad" : "data"}>{children}</dd>
		</div>
	);
}
