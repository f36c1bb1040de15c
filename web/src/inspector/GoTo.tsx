import { useState } from "react";
import { parseOffset } from "../hex/hex";
import styles from "./BodyView.module.css";

/** Takes a person to an offset: "0xFA00", "1.5 GB", "50%", "end". */
export function GoTo({ size, onGo }: { size: number; onGo: (offset: number) => void }) {
	const [text, setText] = useState("");
	const offset = parseOffset(text, size);
	const wrong = text.trim() !== "" && offset === undefined;
	return (
		<form
			className={styles.goto}
			onSubmit={(event) => {
				event.preventDefault();
				if (offset !== undefined) onGo(offset);
			}}
		>
			<input
				aria-label="Go to offset"
				placeholder="go to offset"
				title="An offset, such as 4194304, 0xFA00, 1.5 GB, 50% or end"
				value={text}
				aria-invalid={wrong}
				autoComplete="off"
				spellCheck={false}
				onChange={(event) => setText(event.target.value)}
			/>
		</form>
	);
}
