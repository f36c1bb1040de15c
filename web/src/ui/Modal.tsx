import { type ReactNode, useId, useLayoutEffect, useRef } from "react";
import styles from "./Modal.module.css";

/** A native modal dialog. It is open while it is mounted; Escape and a click beside it close it. The focus goes back to where it came from. */
export function Modal({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
	const dialog = useRef<HTMLDialogElement>(null);
	const heading = useId();
	// Only a dialog that is closed while it is in the page gives the focus back: a later effect's end would come after it was taken out.
	useLayoutEffect(() => {
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
