import { type ReactNode, useEffect, useId, useRef } from "react";
import styles from "./Modal.module.css";

/** A native modal dialog. It is open while it is mounted; Escape and a click beside it close it. */
export function Modal({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
	const dialog = useRef<HTMLDialogElement>(null);
	const heading = useId();
	useEffect(() => {
		const element = dialog.current;
		if (element && !element.open) element.showModal();
		return () => element?.close();
	}, []);
	return (
		<dialog
			ref={dialog}
			className={styles.modal}
			aria-labelledby={heading}
			onCancel={(event) => {
				event.preventDefault();
				onClose();
			}}
			closedby="any"
		>
			<div className={styles.inside}>
				<div className={styles.title}>
					<h2 id={heading}>{title}</h2>
					<button type="button" aria-label="Close" onClick={onClose}>
						×
					</button>
				</div>
				{children}
			</div>
		</dialog>
	);
}
