import { formatBytes, formatDuration, formatRate } from "../format";
import { useClock } from "../state/clock";
import { contentLength, type Sample, speedOf, timeLeft } from "../state/progress";
import type { Message } from "../types";
import styles from "./Progress.module.css";

/** How far a growing body is. */
export function Progress({ message, samples }: { message: Message; samples: Sample[] }) {
	const { size, passed } = message.body;
	const total = contentLength(message.fields);
	const speed = speedOf(samples, useClock());
	const left = timeLeft(passed, total, speed);
	if (size === 0 && total === undefined) return null;
	return (
		<div className={styles.flow}>
			<div className={styles.words}>
				<span>
					<b>{formatBytes(size)}</b> {total === undefined ? "captured so far" : `of ${formatBytes(total)} captured`}
				</span>
				<span>
					{speed !== undefined && formatRate(speed)}
					{left !== undefined && ` · about ${formatDuration(left)} left`}
				</span>
			</div>
			<div
				className={styles.bar}
				role="progressbar"
				aria-label="Captured"
				aria-valuemin={0}
				aria-valuemax={total}
				aria-valuenow={total === undefined ? undefined : size}
			>
				<i className={total === undefined ? styles.unknown : undefined} style={total === undefined ? undefined : { width: `${Math.min(100, (100 * size) / Math.max(1, total))}%` }} />
			</div>
		</div>
	);
}
