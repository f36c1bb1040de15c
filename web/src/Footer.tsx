import styles from "./Footer.module.css";
import { formatBytes, formatCount, formatNumberOf, formatRate } from "./format";
import type { Dashboard } from "./state/dashboard";
import { useStore } from "./state/store";

const words = { connecting: "connecting", live: "live", reconnecting: "reconnecting", ended: "not connected" };

export function Footer({ dashboard }: { dashboard: Dashboard }) {
	const connection = useStore(dashboard.live.connection);
	const status = useStore(dashboard.status);
	const traffic = useStore(dashboard.traffic);
	const store = traffic?.store ?? status?.store;
	return (
		<footer className={styles.foot}>
			<span role="status">
				<i className={`${styles.dot} ${connection === "live" ? styles.live : ""}`} aria-hidden="true" />
				{words[connection]}
			</span>
			{status && <span>proxy {status.addresses[0] ?? status.proxy}</span>}
			{connection === "live" && traffic && (
				<span>
					{formatRate(traffic.bytes_per_second)} · {formatRateOf(traffic.sessions_per_second)}
				</span>
			)}
			{store && store.open > 0 && <span className={styles.optional}>{formatCount(store.open)} open</span>}
			{store && <Disk bytes={store.bytes} free={store.free} total={store.total} />}
			<span className={styles.keys}>↑↓ select · Enter open · Esc close · Del delete · / filter</span>
		</footer>
	);
}

function formatRateOf(sessions: number): string {
	return sessions > 0 && sessions < 9.95 ? `${sessions.toFixed(1)} sessions/s` : `${formatNumberOf(Math.round(sessions), "session")}/s`;
}

/** How much of the disk Millpond's data takes, and how much everything else. */
function Disk({ bytes, free, total }: { bytes: number; free: number; total: number }) {
	const share = (part: number) => `${Math.min(100, (100 * part) / Math.max(1, total))}%`;
	const used = Math.max(0, total - free - bytes);
	return (
		<span title={`Millpond's log, bodies and index take ${formatBytes(bytes)}, of which the index takes its room in steps of 16.8 MB; ${formatBytes(free)} of the disk's ${formatBytes(total)} are free`}>
			disk
			<span className={styles.disk} aria-hidden="true">
				<i className={styles.ours} style={{ width: share(bytes) }} />
				<i className={styles.others} style={{ width: share(used) }} />
			</span>
			{formatBytes(bytes)} on disk, {formatBytes(free)} free
		</span>
	);
}
