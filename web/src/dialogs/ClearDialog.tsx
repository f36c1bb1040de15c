import { useState } from "react";
import { formatNumberOf } from "../format";
import type { Dashboard } from "../state/dashboard";
import { useStore } from "../state/store";
import { Modal } from "../ui/Modal";
import styles from "./dialogs.module.css";

/** Asks before sessions are deleted, and says how many they are. */
export function ClearDialog({ dashboard, onClose }: { dashboard: Dashboard; onClose: () => void }) {
	const { filter, total } = useStore(dashboard.list.state);
	const traffic = useStore(dashboard.traffic);
	const status = useStore(dashboard.status);
	const [working, setWorking] = useState(false);
	const all = Math.max(total, traffic?.store.sessions ?? status?.store.sessions ?? 0);
	const shown = filter.length > 20 ? `${filter.slice(0, 20)}…` : filter;
	const remove = async (which: string) => {
		setWorking(true);
		await dashboard.deleteAll(which);
		onClose();
	};
	return (
		<Modal title={filter === "" ? `Delete ${formatNumberOf(all, "session")}?` : "Delete sessions?"} onClose={onClose}>
			<p>Their requests, responses and bodies are removed from the disk. This cannot be undone. Pinned and shared sessions go, too. Sessions that are still open are dropped at their end.</p>
			{filter !== "" && total === 0 && <p>No session matches “{shown}”, so this would delete those that the filter hides.</p>}
			<div className={styles.actions}>
				<button type="button" className="quiet" onClick={onClose}>
					Keep them
				</button>
				{filter !== "" && total > 0 && (
					<button type="button" className="danger" disabled={working} onClick={() => remove(filter)}>
						Delete the {formatNumberOf(total, "session")} with “{shown}”
					</button>
				)}
				<button type="button" className={filter === "" ? "danger" : "quiet"} disabled={working} onClick={() => remove("")}>
					Delete all {formatNumberOf(all, "session")}
				</button>
			</div>
		</Modal>
	);
}
