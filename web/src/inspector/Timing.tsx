import { formatDuration } from "../format";
import type { Session } from "../types";
import { endUnknown } from "../words";
import { phasesOf } from "./phases";
import styles from "./Timing.module.css";

/** How long each phase took, below each other on one time axis. */
export function Timing({ session }: { session: Session }) {
	const { phases, total, begin, idle } = phasesOf(session);
	const percent = (time: number) => `${(100 * time) / total}%`;
	return (
		<>
			<table className={styles.timing}>
				<tbody>
					{phases.map((phase) => (
						<tr key={phase.name}>
							<th scope="row">{phase.name}</th>
							<td className="num">{formatDuration(phase.duration)}</td>
							<td className={styles.bars} aria-hidden="true">
								{begin > 0 && <b style={{ left: percent(begin) }} />}
								<i className={styles[phase.kind]} style={{ left: percent(phase.start), width: percent(phase.duration) }} />
							</td>
						</tr>
					))}
					<tr className={styles.total}>
						<th scope="row">{session.state === "open" ? "So far" : "Total"}</th>
						<td className="num">{endUnknown(session) ? "—" : formatDuration(session.duration)}</td>
					</tr>
				</tbody>
			</table>
			{begin > 0 && (
				<p className="dim">
					The connection was made ahead of the request, and is not part of its total{idle >= 1 ? `: it stood ready ${formatDuration(idle)} before` : ""}.
				</p>
			)}
		</>
	);
}
