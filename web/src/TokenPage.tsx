import { type FormEvent, useEffect, useRef, useState } from "react";
import { tokenFrom } from "./fragment";
import { Page } from "./ui/Page";
import styles from "./TokenPage.module.css";

/** Asks for the token. Putting it into the fragment and loading the page again is the same way in as the printed link. */
export function TokenPage({ refused }: { refused: boolean }) {
	const [text, setText] = useState("");
	const field = useRef<HTMLInputElement>(null);
	// The page is for nothing else.
	useEffect(() => field.current?.focus(), []);
	const submit = (event: FormEvent) => {
		event.preventDefault();
		location.hash = `token=${encodeURIComponent(tokenFrom(text))}`;
		location.reload();
	};
	return (
		<Page title={refused ? "That token is not the right one" : "This dashboard needs its token"}>
			{refused ? (
				<p role="alert">
					Millpond makes a new token each time it starts, unless one was given with <code>--token</code>. Use the link it printed last.
				</p>
			) : (
				<p>Millpond prints a link with the token to its terminal (or its log) when it starts. Open that link, or paste it here.</p>
			)}
			<pre>dashboard http://127.0.0.1:8081/#token=…</pre>
			<form className={styles.form} onSubmit={submit}>
				<label htmlFor="token">Link or token</label>
				<input
					ref={field}
					id="token"
					className="data"
					value={text}
					onChange={(event) => setText(event.target.value)}
					autoComplete="off"
					spellCheck={false}
				/>
				<button type="submit" className="primary" disabled={tokenFrom(text) === ""}>
					Open the dashboard
				</button>
			</form>
		</Page>
	);
}
