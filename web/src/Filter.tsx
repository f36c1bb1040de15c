import styles from "./Filter.module.css";
import type { Dashboard } from "./state/dashboard";
import { useStore } from "./state/store";

/** The filter field. The server filters; what is typed is asked for at once, and the latest answer wins. */
export function Filter({ dashboard }: { dashboard: Dashboard }) {
	const { text, problem } = useStore(dashboard.list.filter);
	const { list } = dashboard;
	return (
		<label className={`${styles.filter} ${problem ? styles.wrong : ""}`}>
			<svg width="13" height="13" viewBox="0 0 13 13" aria-hidden="true">
				<circle cx="5.5" cy="5.5" r="4" />
				<path d="m8.6 8.6 3.4 3.4" />
			</svg>
			<input
				id="filter"
				aria-label="Filter by a part of the URL, or by status:404"
				aria-keyshortcuts="/"
				placeholder="a part of the URL, or status:404"
				value={text}
				maxLength={2000}
				spellCheck={false}
				autoComplete="off"
				autoCapitalize="off"
				aria-invalid={problem !== ""}
				onChange={(event) => list.setFilter(event.target.value)}
				onKeyDown={(event) => {
					if (event.key === "Escape") {
						event.preventDefault();
						if (text !== "") list.setFilter("");
						else document.getElementById("sessions")?.focus();
					} else if (event.key === "ArrowDown" || event.key === "Enter") {
						event.preventDefault();
						document.getElementById("sessions")?.focus();
						if (!list.state.get().selected) list.move(0);
					}
				}}
			/>
			{problem && (
				<span className={styles.problem} role="alert">
					{problem}
				</span>
			)}
			{text !== "" && (
				<button type="button" aria-label="Clear the filter" onClick={() => list.setFilter("")}>
					×
				</button>
			)}
			{text === "" && <kbd aria-hidden="true">/</kbd>}
		</label>
	);
}
