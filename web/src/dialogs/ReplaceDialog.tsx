import { useState } from "react";
import { explain } from "../client";
import type { Dashboard } from "../state/dashboard";
import type { Authority } from "../types";
import { Modal } from "../ui/Modal";
import styles from "./dialogs.module.css";

/** Asks before a new certificate authority takes the place of the present one, and says what that breaks; then tells where the old one is. */
export function ReplaceDialog(props: { dashboard: Dashboard; authority: Authority; onClose: () => void }) {
	const { dashboard, onClose } = props;
	// The one that the question is about, whatever comes meanwhile.
	const [authority] = useState(props.authority);
	const [working, setWorking] = useState(false);
	const [made, setMade] = useState<Authority>();
	const [problem, setProblem] = useState("");
	const replace = async () => {
		setWorking(true);
		setProblem("");
		try {
			setMade(await dashboard.replaceAuthority(authority));
		} catch (error) {
			setProblem(explain(error));
		}
		setWorking(false);
	};
	if (made) {
		return (
			<Modal title="A new authority is in force" onClose={onClose}>
				<p>
					{made.name}, SHA-256 <code className={styles.print}>{made.fingerprint}</code>
				</p>
				<p>Install it on your devices, and remove the old one there.</p>
				{made.kept && (
					<p>
						The old one is kept in <span className="data">{made.kept}</span>. To go back to it, stop Millpond and put its two files back.
					</p>
				)}
				<div className={styles.actions}>
					<button type="button" className="primary" onClick={onClose}>
						Connect a device
					</button>
				</div>
			</Modal>
		);
	}
	return (
		<Modal title="Replace the certificate authority?" onClose={onClose}>
			<p>
				<b>Every device and program that trusts the present one stops working through the proxy</b> for HTTPS, at once, until it has installed the new
				certificate. Connections that stand go on.
			</p>
			<p>It is the thing to do when somebody else may have read its key. The old authority is kept aside on this machine; sessions are not touched.</p>
			{problem && (
				<p className="bad" role="alert">
					{problem}
				</p>
			)}
			<div className={styles.actions}>
				<button type="button" className="quiet" onClick={onClose}>
					Keep it
				</button>
				<button type="button" className="danger" disabled={working} onClick={replace}>
					Replace it
				</button>
			</div>
		</Modal>
	);
}
