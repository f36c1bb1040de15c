import { useEffect, useState } from "react";
import type { Api } from "../client";
import { formatDuration, formatTime } from "../format";
import { SessionShares } from "../state/shares";
import { useStore } from "../state/store";
import type { Share, Summary } from "../types";
import { CopyButton } from "../ui/Copyable";
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

/** Makes, shows and revokes the links to one session. */
export function ShareDialog({ api, row, onClose }: { api: Api; row: Summary; onClose: () => void }) {
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
				Whoever has the link sees this one session and its two bodies, until it expires or you revoke it. The values of Authorization, Cookie and
				Set-Cookie are hidden; <b>bodies and URLs are not</b>.
			</p>
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

function expiry(share: Share): string {
	const left = Date.parse(share.expires) - Date.now();
	return `made ${formatTime(share.created).slice(0, 5)}, expires in ${formatDuration(Math.max(0, left))}`;
}
