import type { ReactNode } from "react";
import { Mark } from "./Mark";
import styles from "./Page.module.css";

/** A page with a message, in place of the dashboard or of a share. */
export function Page({ title, children }: { title: string; children: ReactNode }) {
	return (
		<main className={styles.page}>
			<div className={styles.card}>
				<div className={styles.name}>
					<Mark /> Millpond
				</div>
				<h1>{title}</h1>
				{children}
			</div>
		</main>
	);
}
