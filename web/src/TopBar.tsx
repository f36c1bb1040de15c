import { useState } from "react";
import { ClearDialog } from "./dialogs/ClearDialog";
import { ConnectDialog } from "./dialogs/ConnectDialog";
import { SettingsDialog } from "./dialogs/SettingsDialog";
import { ShareDialog } from "./dialogs/ShareDialog";
import { Filter } from "./Filter";
import { formatCount, formatNumberOf } from "./format";
import type { Dashboard } from "./state/dashboard";
import { useStore } from "./state/store";
import { nextTheme, systemIsDark, theme } from "./state/theme";
import styles from "./TopBar.module.css";
import { Mark } from "./ui/Mark";

type Dialog = "clear" | "share" | "connect" | "settings" | undefined;

export function TopBar({ dashboard }: { dashboard: Dashboard }) {
	const [dialog, setDialog] = useState<Dialog>();
	const { total, selected } = useStore(dashboard.list.state);
	const status = useStore(dashboard.status);
	const traffic = useStore(dashboard.traffic);
	// A filter that nothing matches still leaves something to delete.
	const nothing = total === 0 && (traffic?.store.sessions ?? status?.store.sessions ?? 0) === 0;
	const close = () => setDialog(undefined);
	return (
		<header className={styles.top}>
			<h1 className={styles.name}>
				<Mark />
				<span>Millpond</span>
			</h1>
			<Recording dashboard={dashboard} />
			<Filter dashboard={dashboard} />
			<Count dashboard={dashboard} />
			<div className={styles.buttons}>
				<button
					type="button"
					className="quiet"
					disabled={nothing}
					title={nothing ? "There are no sessions to delete" : "Delete captured sessions…"}
					onClick={() => setDialog("clear")}
				>
					Clear…
				</button>
				<button
					type="button"
					className="quiet"
					disabled={!selected}
					title={selected ? undefined : "Select a session first"}
					onClick={() => setDialog("share")}
				>
					Share
				</button>
				<button type="button" className="primary" aria-label="Connect a device" onClick={() => setDialog("connect")}>
					Connect<span className={styles.long}> a device</span>
				</button>
				<button type="button" className={`quiet ${styles.theme}`} aria-label="Settings" title="Settings" onClick={() => setDialog("settings")}>
					<span aria-hidden="true">⚙</span>
				</button>
				<ThemeButton />
			</div>
			{dialog === "clear" && <ClearDialog dashboard={dashboard} onClose={close} />}
			{dialog === "share" && selected && <ShareDialog api={dashboard.api} row={selected.row} listens={status?.dashboard ?? ""} onClose={close} />}
			{dialog === "settings" && <SettingsDialog dashboard={dashboard} onClose={close} />}
			{dialog === "connect" && <ConnectDialog dashboard={dashboard} onClose={close} />}
		</header>
	);
}

/** Whether traffic is being captured: what the server says, not a wish. */
function Recording({ dashboard }: { dashboard: Dashboard }) {
	const status = useStore(dashboard.status);
	const traffic = useStore(dashboard.traffic);
	const connection = useStore(dashboard.live.connection);
	const store = traffic?.store ?? status?.store;
	const known = connection === "live" && store !== undefined;
	const works = known && store.capturing;
	const word = works ? "Recording" : known ? "Not recording" : "Recording?";
	return (
		<span
			className={`${styles.recording} ${works ? styles.works : known ? styles.fails : ""}`}
			role="status"
			title={works ? "What passes through the proxy is being captured" : known ? store.problem : "Not connected to Millpond, so it cannot be told"}
		>
			<i aria-hidden="true" />
			{word}
		</span>
	);
}

function Count({ dashboard }: { dashboard: Dashboard }) {
	const { total, filter, ready } = useStore(dashboard.list.state);
	const status = useStore(dashboard.status);
	const traffic = useStore(dashboard.traffic);
	if (!ready) return <span className={styles.count} />;
	// The two figures come at different moments: never say "5 of 4".
	const all = Math.max(total, traffic?.store.sessions ?? status?.store.sessions ?? 0);
	return (
		<span className={styles.count} data-testid="count">
			{filter === "" ? formatNumberOf(total, "session") : `${formatCount(total)} of ${formatCount(all)}`}
		</span>
	);
}

const themeSigns = { system: "◐", light: "☀", dark: "☾" };

function ThemeButton() {
	const now = useStore(theme);
	const next = nextTheme(now, systemIsDark());
	return (
		<button
			type="button"
			className={`quiet ${styles.theme}`}
			aria-label={`Theme: ${now}. Change to ${next}`}
			title={`Theme: ${now === "system" ? "as the system says" : now}`}
			onClick={() => theme.set(next)}
		>
			<span aria-hidden="true">{themeSigns[now]}</span>
		</button>
	);
}
