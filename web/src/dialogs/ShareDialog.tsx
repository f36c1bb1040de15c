import { useEffect, useState } from "react";
import { isLoopback, splitAddress } from "../address";
import type { Api } from "../client";
import { formatDuration, formatTime } from "../format";
import { SessionShares } from "../state/shares";
import { useStore } from "../state/store";
import type { Share, Summary } from "../types";
import { Copyable, CopyButton } from "../ui/Copyable";
import { Modal } from "../ui/Modal";
import { urlParts } from "../words";
import styles from "./dialogs.module.css";

const hour = 3_600;
const lives: [label: string, seconds: number][] = [
	["1 hour", hour],
	["1 day", 24 * hour],
	["1 week", 7 * 24 * hour],
	["30 days", 30 * 24 * hour],
];

/** Makes, shows and revokes the links to one session. `listens` is the dashboard's listener, host:port. */
export function ShareDialog(props: { api: Api; row: Summary; listens: string; onClose: () => void }) {
	const { api, row, listens, onClose } = props;
	const [life, setLife] = useState(7 * 24 * hour);
	// The dialog is about the session it was opened for, whatever is selected later.
	const [session] = useState(row);
	const [links] = useState(() => new SessionShares(api, row.id));
	useEffect(() => {
		links.load();
	}, [links]);
	const { shares, made, problem } = useStore(links.state);
	const { scheme, host, path } = urlParts(session);
	return (
		<Modal title="Share this session" onClose={onClose}>
			<p className={styles.what}>
				<b>{session.method}</b> {scheme + host + path}
			</p>
			<p>
				Whoever has the link sees this one session and its two bodies, until it expires or you revoke it. The values of the fields Authorization,
				Proxy-Authorization, Cookie and Set-Cookie are hidden; <b>other fields, the URL and the bodies are not</b>.
			</p>
			{isLoopback(location.hostname) && <OnlyHere listens={listens} />}
			<div className={styles.make}>
				<label>
					Expires after{" "}
					<select value={life} onChange={(event) => setLife(Number(event.target.value))}>
						{lives.map(([label, seconds]) => (
							<option key={seconds} value={seconds}>
								{label}
							</option>
						))}
					</select>
				</label>
				<button type="button" className="primary" onClick={() => links.make(life)}>
					Make a link
				</button>
			</div>
			{made && (
				<div className={styles.link}>
					<label htmlFor="share-link">The link. It is shown only now; Millpond keeps no copy.</label>
					<input id="share-link" className="data" readOnly value={made.url} onFocus={(event) => event.target.select()} />
					<CopyButton text={made.url} label="the link" />
				</div>
			)}
			{problem && (
				<p className="bad" role="alert">
					{problem}
				</p>
			)}
			{shares && shares.length > 0 && (
				<section>
					<h3 className={styles.heading}>Links to this session</h3>
					<ul className={styles.shares}>
						{shares.map((share) => (
							<li key={share.id}>
								<span className="data">{share.id}</span>
								<span className="dim">{expiry(share)}</span>
								<button type="button" className="quiet" aria-label={`Revoke the link ${share.id}`} onClick={() => links.revoke(share)}>
									Revoke
								</button>
							</li>
						))}
					</ul>
				</section>
			)}
		</Modal>
	);
}

/** Tells that a link made here leads nowhere elsewhere, and how to make one that does. A link has the name by which its maker reached the dashboard. */
function OnlyHere({ listens }: { listens: string }) {
	const { host, port } = splitAddress(listens);
	if (listens !== "" && !isLoopback(host)) {
		return (
			<div className={styles.notice} role="note">
				<p>
					<b>The link opens only on this machine</b>, because you reached the dashboard at <span className="data">{location.hostname}</span>. For
					others, open the dashboard at this machine's address, and make the link there.
				</p>
			</div>
		);
	}
	return (
		<div className={styles.notice} role="note">
			<p>
				<b>The link opens only on this machine:</b> the dashboard listens on loopback. For others, start Millpond again with
			</p>
			<Copyable label="the flag" text={`--dashboard 0.0.0.0:${port || 8081}`} />
			<p>
				and open the dashboard at this machine's address. Where it has a name, add <span className="data">--allow-host NAME</span>.
			</p>
		</div>
	);
}

function expiry(share: Share): string {
	const left = Date.parse(share.expires) - Date.now();
	return `made ${formatTime(share.created).slice(0, 5)}, expires in ${formatDuration(Math.max(0, left))}`;
}
