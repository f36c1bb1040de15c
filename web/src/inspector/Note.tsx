import { type KeyboardEvent, useState } from "react";
import { explain } from "../client";
import styles from "./Overview.module.css";

/** The API takes no longer one. */
const longestNote = 4000;

/** A session's note, to be edited. It is kept when the field is left, or with Enter; Shift+Enter is a new line, and Escape puts back what was. */
export function Note({ id, note, onNote }: { id: number; note: string; onNote: (id: number, note: string) => Promise<void> }) {
	const [draft, setDraft] = useState<string>();
	const [problem, setProblem] = useState("");
	const keep = async () => {
		if (draft === undefined) return;
		try {
			if (draft !== note) await onNote(id, draft);
			setDraft((now) => (now === draft ? undefined : now)); // it may have been typed on
			setProblem("");
		} catch (error) {
			setProblem(explain(error));
		}
	};
	const onKey = (event: KeyboardEvent) => {
		if (event.key === "Escape") {
			setDraft(undefined);
			setProblem("");
		}
		if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
		event.preventDefault();
		keep();
	};
	return (
		<section>
			<label className={styles.note}>
				<h3>Note</h3>
				<textarea
					rows={1}
					value={draft ?? note}
					placeholder="What is to be remembered of it"
					maxLength={longestNote}
					onChange={(event) => setDraft(event.target.value)}
					onBlur={keep}
					onKeyDown={onKey}
				/>
			</label>
			{problem && (
				<p className={styles.error} role="alert">
					{problem}
				</p>
			)}
		</section>
	);
}
