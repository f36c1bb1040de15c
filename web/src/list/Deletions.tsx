import { formatCount, formatNumberOf } from "../format";
import type { Dashboard } from "../state/dashboard";
import { useStore } from "../state/store";
import type { Deletion } from "../types";
import styles from "./SessionsPane.module.css";

/** The deletions of many sessions that are under way, one line each. */
export function Deletions({ dashboard }: { dashboard: Dashboard }) {
	const traffic = useStore(dashboard.traffic);
	const status = useStore(dashboard.status);
	const deletions = (traffic ?? status)?.deletions ?? [];
	return deletions.map((each) => (
		<div key={each.id} className={`${styles.deletion} ${each.problem ? styles.problem : ""}`} role="group" aria-label="Deletion">
			<span>{wordsOf(each)}</span>
			{each.total !== undefined && each.running && <progress value={Math.min(each.done, each.total)} max={each.total} aria-label="Deleted" />}
			<button type="button" className="quiet" onClick={() => dashboard.cancelDeletion(each.id)}>
				{each.problem ? "Close" : "Cancel"}
			</button>
		</div>
	));
}

function wordsOf({ filter, done, total, running, problem }: Deletion): string {
	const which = filter === "" ? "" : ` with “${filter.length > 20 ? `${filter.slice(0, 20)}…` : filter}”`;
	if (problem) return `Not all sessions${which} were deleted, but ${formatCount(done)}: ${problem}`;
	if (!running) return `Sessions${which} are deleted next`;
	return total === undefined ? `Deleting sessions${which}: ${formatCount(done)} so far` : `Deleting ${formatNumberOf(total, "session")}: ${formatCount(done)} so far`;
}
