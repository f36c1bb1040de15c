import { useEffect, useState } from "react";
import styles from "./Copyable.module.css";

/** A line of text with a button that copies it. */
export function Copyable({ text, label, wrap = true }: { text: string; label: string; wrap?: boolean }) {
	return (
		<div className={styles.box}>
			<code className={wrap ? styles.wrap : styles.cut}>{text}</code>
			<CopyButton text={text} label={label} />
		</div>
	);
}

export function CopyButton({ text, label }: { text: string; label: string }) {
	const [said, setSaid] = useState("");
	useEffect(() => {
		if (said === "") return;
		const timer = setTimeout(() => setSaid(""), 2_000);
		return () => clearTimeout(timer);
	}, [said]);
	const copy = async () => {
		setSaid((await copyText(text)) ? "Copied" : "Press Ctrl+C");
	};
	return (
		<button type="button" className="quiet" onClick={copy} aria-label={`Copy ${label}`}>
			<span role="status">{said || "Copy"}</span>
		</button>
	);
}

/** Copies text. Browsers offer their clipboard to secure pages only, and a dashboard on another machine's address is none. */
async function copyText(text: string): Promise<boolean> {
	try {
		await navigator.clipboard.writeText(text);
		return true;
	} catch {
		const area = document.createElement("textarea");
		area.value = text;
		// A modal dialog makes everything outside it inert, so the helper must be inside.
		(document.querySelector("dialog[open]") ?? document.body).append(area);
		area.select();
		const copied = document.execCommand("copy");
		area.remove();
		return copied;
	}
}
