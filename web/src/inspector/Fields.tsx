import { type ReactNode, useState } from "react";
import { readable } from "../text/wire";
import type { Message, Side } from "../types";
import styles from "./Fields.module.css";
import { readHead, startLine } from "./heads";

type Field = readonly [string, string];

/** A side's head: what was sent on, in the order and spelling of the wire, and what was received where that differs. `alone`, without a body below, it takes the room. */
export function Fields({ message, side, alone }: { message: Message; side: Side; alone: boolean }) {
	const [received, setReceived] = useState(false);
	if (message.head === "" && message.fields.length === 0) return null;
	const shown = received && message.received ? readHead(message.received) : { start: startLine(message.head), fields: message.fields };
	return (
		<section className={`${styles.fields} ${alone ? styles.alone : ""}`} aria-label={`Fields of the ${side}`}>
			{message.received && (
				<div className={styles.which}>
					<span className="seg">
						<button type="button" aria-pressed={!received} onClick={() => setReceived(false)}>
							Sent on
						</button>
						<button type="button" aria-pressed={received} onClick={() => setReceived(true)}>
							Received
						</button>
					</span>
					<span className="dim">What was sent on differs from what was received.</span>
				</div>
			)}
			{(message.informational ?? []).map((head, at) => {
				const { start, fields } = readHead(head);
				// oxlint-disable-next-line react/no-array-index-key -- their order is what they are, and they are only ever added to
				return <Group key={at} start={start} fields={fields} />;
			})}
			<Group start={shown.start} fields={shown.fields} />
			{message.trailers && message.trailers.length > 0 && <Group start={<i>Trailers</i>} fields={message.trailers} />}
		</section>
	);
}

function Group({ start, fields }: { start: ReactNode; fields: readonly Field[] }) {
	return (
		<>
			{start && <p className={styles.start}>{typeof start === "string" ? readable(start) : start}</p>}
			<dl>
				{fields.map(([name, value], at) => (
					// oxlint-disable-next-line react/no-array-index-key -- fields repeat, and their order is what they are
					<div key={at}>
						<dt>{readable(name)}</dt>
						<dd>{value === "" ? <span className="dimmer">(empty)</span> : readable(value)}</dd>
					</div>
				))}
			</dl>
		</>
	);
}
