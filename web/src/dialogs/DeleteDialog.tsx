import { useEffect, useRef, useState } from "react";
import { formatCount } from "../format";
import type { Dashboard } from "../state/dashboard";
import type { Summary } from "../types";
import { Modal } from "../ui/Modal";
import { urlParts } from "../words";
import styles from "./dialogs.module.css";

/** Asks before one session is deleted. Enter agrees. */
export function DeleteDialog(props: { dashboard: Dashboard; row: Summary; onClose: (deleted: boolean) => void }) {
	const { dashboard, row, onClose } = props;
	const agree = useRef<HTMLButtonElement>(null);
	const [working, setWorking] = useState(false);
	useEffect(() => agree.current?.focus(), []);
	const remove = async () => {
		setWorking(true);
		await dashboard.deleteSession(row.id);
		onClose(true);
	};
	const { scheme, host, path } = urlParts(row);
	return (
		<Modal title={`Delete session ${formatCount(row.id)}?`} onClose={() => onClose(false)}>
			<p className={styles.what}>
				<b>{row.method}</b> {scheme + host + path}
			</p>
			<p>
				Its request, its response and their bodies are removed from the disk. This cannot be undone.
				{row.state === "open" && " It is still open, and is dropped at its end."}
			</p>
			<div className={styles.actions}>
				<button type="button" className="quiet" onClick={() => onClose(false)}>
					Keep it
				</button>
				<button ref={agree} type="button" className="danger" disabled={working} onClick={remove}>
					Delete
				</button>
			</div>
		</Modal>
	);
}
