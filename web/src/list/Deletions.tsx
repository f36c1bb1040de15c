import type { Dashboard } from "../state/dashboard";
import { useStore } from "../state/store";
import { deletionWords } from "../words";
import styles from "./SessionsPane.module.css";

/** The deletions of many sessions that are under way, failed or ended a moment ago, one line each. */
export function Deletions({ dashboard }: { dashboard: Dashboard }) {
	const traffic = useStore(dashboard.traffic);
	const status = useStore(dashboard.status);
	const deletions = (traffic ?? status)?.deletions ?? [];
	return deletions.map((each) => (
		<div key={each.id} className={`${styles.deletion} ${each.problem ? styles.problem : ""}`} role="group" aria-label="Deletion">
			<span role={each.ended ? "status" : undefined}>{deletionWords(each)}</span>
			{each.total !== undefined && each.running && <progress value={Math.min(each.done, each.total)} max={each.total} aria-label="Deleted" />}
			<button type="button" className="quiet" onClick={() => dashboard.cancelDeletion(each.id)}>
				{each.ended ? "Dismiss" : "Cancel"}
			</button>
		</div>
	));
}
