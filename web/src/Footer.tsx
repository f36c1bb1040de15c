import styles from "./Footer.module.css";
import { formatBytes, formatCount, formatNumberOf, formatRate } from "./format";
import type { Dashboard } from "./state/dashboard";
import { useStore } from "./state/store";
import type { StoreStatus } from "./types";
import { limitsOf } from "./words";

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
			{store && <Disk store={store} />}
			<span className={styles.keys}>↑↓ select · Enter open · Esc close · Del delete · p pin · / filter</span>
		</footer>
	);
}

function formatRateOf(sessions: number): string {
	return sessions > 0 && sessions < 9.95 ? `${sessions.toFixed(1)} sessions/s` : `${formatNumberOf(Math.round(sessions), "session")}/s`;
}

const share = (part: number, of: number) => `${Math.min(100, (100 * part) / Math.max(1, of))}%`;

/** How much of its limit what is kept takes; where there is none, how much of the disk, beside everything else. */
function Disk({ store }: { store: StoreStatus }) {
	const { bytes, free, total, retention } = store;
	const max = retention.max_bytes ?? 0;
	const rest = `Millpond's log, bodies, index and decoded copies take ${formatBytes(bytes)}; ${formatBytes(free)} of the disk's ${formatBytes(total)} are free.`;
	if (max === 0) {
		return (
			<span title={`${rest} ${limitsOf(retention)}`}>
				disk
				<span className={styles.disk} aria-hidden="true">
					<i className={styles.ours} style={{ width: share(bytes, total) }} />
					<i className={styles.others} style={{ width: share(Math.max(0, total - free - bytes), total) }} />
				</span>
				{formatBytes(bytes)} on disk, {formatBytes(free)} free
			</span>
		);
	}
	return (
		<span title={`${limitsOf(retention)} ${rest}`}>
			kept
			<span className={styles.disk} aria-hidden="true">
				<i className={styles.ours} style={{ width: share(retention.used, max) }} />
			</span>
			{formatBytes(retention.used)} of {formatBytes(max)}
			{retention.short && <span className={styles.warn}> · only {formatBytes(free)} free</span>}
			{retention.stuck && <span className={styles.warn}> · nothing may go</span>}
		</span>
	);
}
