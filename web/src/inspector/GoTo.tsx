import { useState } from "react";
import { formatCount } from "../format";
import { parseOffset } from "../hex/hex";
import styles from "./BodyView.module.css";

/** Takes a person to an offset: "0xFA00", "1.5 GB", "50%", "end". */
export function GoTo({ size, growing, onGo }: { size: number; growing: boolean; onGo: (offset: number) => void }) {
	const [text, setText] = useState("");
	const offset = parseOffset(text, size);
	const beyond = offset === undefined && parseOffset(text, Number.POSITIVE_INFINITY) !== undefined;
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
				title="An offset in bytes: 4194304, or 0xFA00 in hex, or 1.5 GB, 50%, end"
				value={text}
				aria-invalid={wrong}
				autoComplete="off"
				spellCheck={false}
				onChange={(event) => setText(event.target.value)}
			/>
			<span className={styles.wrong} role="status">
				{wrong && (beyond ? `${growing ? "so far there are" : "there are only"} ${formatCount(size)} bytes` : "such as 4096, 0xFA00, 50% or end")}
			</span>
		</form>
	);
}
