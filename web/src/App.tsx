import { useEffect, useState } from "react";
import { flushSync } from "react-dom";
import styles from "./App.module.css";
import { DeleteDialog } from "./dialogs/DeleteDialog";
import { Footer } from "./Footer";
import { Inspector } from "./inspector/Inspector";
import { SessionsPane } from "./list/SessionsPane";
import { Page } from "./ui/Page";
import { TokenPage } from "./TokenPage";
import { TopBar } from "./TopBar";
import type { Dashboard } from "./state/dashboard";
import { useStore } from "./state/store";
import type { Summary } from "./types";

/** The page of the dashboard, or why it is not shown. */
export function App({ dashboard }: { dashboard: Dashboard }) {
	const access = useStore(dashboard.access);
	switch (access) {
		case "asking":
			return null;
		case "given":
			return <Main dashboard={dashboard} />;
		case "unreachable":
			return (
				<Page title="Millpond cannot be reached">
					<p>The server that this page came from does not answer. Start it again, then reload this page.</p>
					<button type="button" className="primary" onClick={() => location.reload()}>
						Reload
					</button>
				</Page>
			);
		default:
			return <TokenPage refused={access === "refused"} />;
	}
}

function Main({ dashboard }: { dashboard: Dashboard }) {
	const inspecting = useStore(dashboard.inspecting);
	const complaint = useStore(dashboard.complaint);
	const { selected } = useStore(dashboard.list.state);
	const open = inspecting && selected !== undefined;
	const [deleting, setDeleting] = useState<Summary>();
	useEffect(() => {
		const onKey = (event: KeyboardEvent) => {
			if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
			if (document.querySelector("dialog[open]")) return;
			if (event.key === "/") {
				event.preventDefault();
				document.getElementById("filter")?.focus();
			} else if (event.key === "Delete") {
				setDeleting(dashboard.list.state.get().selected?.row);
			} else if (event.key === "p") {
				dashboard.togglePin();
			} else if (event.key === "Escape" && dashboard.inspecting.get()) {
				dashboard.closeInspector();
				document.getElementById("sessions")?.focus();
			}
		};
		document.addEventListener("keydown", onKey);
		return () => document.removeEventListener("keydown", onKey);
	}, [dashboard]);
	return (
		<div className={styles.app}>
			<TopBar dashboard={dashboard} />
			{/* Over both panes: on a narrow screen the inspector takes the list's place. */}
			<div aria-live="assertive">{complaint && <p className={styles.complaint}>{complaint}</p>}</div>
			<main className={`${styles.middle} ${open ? styles.split : ""}`}>
				<SessionsPane dashboard={dashboard} />
				{open && (
					<Inspector
						api={dashboard.api}
						session={dashboard.session}
						outbound={dashboard.outbound}
						row={selected.row}
						onPin={() => dashboard.togglePin()}
						onNote={(id, note) => dashboard.annotate(id, { note })}
						onDelete={() => setDeleting(selected.row)}
						onClose={() => {
							dashboard.closeInspector();
							document.getElementById("sessions")?.focus();
						}}
					/>
				)}
			</main>
			<Footer dashboard={dashboard} />
			{deleting && (
				<DeleteDialog
					dashboard={dashboard}
					row={deleting}
					onClose={(deleted) => {
						// The dialog must be gone before anything outside it can have the focus.
						flushSync(() => setDeleting(undefined));
						if (deleted) document.getElementById("sessions")?.focus();
					}}
				/>
			)}
		</div>
	);
}

function isTyping(target: EventTarget | null): boolean {
	return target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}
