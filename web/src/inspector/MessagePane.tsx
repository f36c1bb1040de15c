import type { Api } from "../client";
import type { Sample } from "../state/progress";
import type { Session, Side } from "../types";
import { BodyView } from "./BodyView";
import { Fields } from "./Fields";
import styles from "./MessagePane.module.css";
import { Progress } from "./Progress";

/** One side of a session: its head, and its body. */
export function MessagePane(props: { api: Api; session: Session; side: Side; samples: Sample[]; onMessages: () => void }) {
	const { session, side } = props;
	const message = session[side];
	const growing = session.state === "open" && !message.body.complete;
	const nothing = message.body.size === 0 && message.body.passed === 0 && !growing;
	return (
		<div className={styles.pane}>
			<Fields message={message} side={side} alone={nothing} />
			{growing && <Progress message={message} samples={props.samples} />}
			{message.body.missing && (
				<p className={styles.missing} role="note">
					The body was {message.body.missing}
				</p>
			)}
			{session.messages?.kind === "websocket" && !nothing && (
				<p className={styles.frames} role="note">
					The frames as they passed{side === "request" && ", masked"}. <button type="button" className="quiet" onClick={props.onMessages}>Messages</button> has what they say.
				</p>
			)}
			{nothing ? (
				<p className={styles.nothing}>{message.head === "" ? `There is no ${side}.` : `This ${side} has no body.`}</p>
			) : (
				<BodyView api={props.api} session={session} side={side} growing={growing} />
			)}
		</div>
	);
}
