import { useEffect } from "react";
import { type HostList, hostState, type Outbound, patternOf } from "../state/outbound";
import { useStore } from "../state/store";
import { useAttempt } from "../state/useAttempt";
import type { Session } from "../types";
import styles from "./HostActions.module.css";

/** What can be set about a session's host, from the session: whether it passes unread, and whether a bad certificate of its is accepted. */
export function HostActions({ outbound, session }: { outbound: Outbound; session: Session }) {
	const { settings, working } = useStore(outbound.state);
	const [problem, attempt] = useAttempt(outbound);
	useEffect(() => {
		outbound.load();
	}, [outbound]);
	const host = patternOf(session.host);
	const secure = session.scheme === "https" || session.scheme === "tcp";
	if (!settings || !secure || host === "") return null;
	const { upstreamRefused, passed } = hostState(session);
	const passes = settings.passthrough.some((each) => each.host === host);
	const choice = (list: HostList, off: string, on: string, holds: string) => {
		const entry = settings[list].find((each) => each.host === host);
		return (
			<p className={styles.choice}>
				{entry && <span>{holds}</span>}
				{entry && entry.from !== "dashboard" ? (
					<span className="dim">Set by {entry.from}.</span>
				) : (
					<button type="button" className="quiet" disabled={working} onClick={() => attempt(() => outbound.setHost(list, host, !entry))}>
						{entry ? on : off}
					</button>
				)}
			</p>
		);
	};
	return (
		<section>
			<h3>{host}</h3>
			{passed && !passes ? (
				<p className="dim">It was passed through unread. Settings has the hosts for which that holds.</p>
			) : (
				choice("passthrough", "Pass this host through unread", "Read it again", "New connections to it pass unread.")
			)}
			{(upstreamRefused || session.flags.includes("insecure_upstream") || settings.insecure_hosts.some((each) => each.host === host)) &&
				choice("insecure_hosts", "Accept its certificate", "Verify it again", "Its certificate is accepted, whatever it is.")}
			{problem && (
				<p className="bad" role="alert">
					{problem}
				</p>
			)}
		</section>
	);
}
