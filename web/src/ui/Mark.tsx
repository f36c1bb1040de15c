import styles from "./Mark.module.css";

/** Millpond's mark: still water. */
export function Mark() {
	return (
		<svg className={styles.mark} width="22" height="18" viewBox="0 0 22 18" aria-hidden="true">
			<path d="M1 5c3.3 0 3.3-3 6.7-3S11 5 14.3 5 17.7 2 21 2" />
			<path d="M1 11c3.3 0 3.3-3 6.7-3s3.3 3 6.6 3 3.4-3 6.7-3" opacity=".7" />
			<path d="M1 17c3.3 0 3.3-3 6.7-3s3.3 3 6.6 3 3.4-3 6.7-3" opacity=".4" />
		</svg>
	);
}
