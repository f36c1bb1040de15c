import { useEffect, useMemo, useState } from "react";
import type { Api } from "../client";
import { BodySource } from "../state/source";
import type { StreamMessage } from "../types";
import styles from "./BodyView.module.css";
import { HexView } from "./HexView";
import pane from "./MessagesPane.module.css";
import { TextView } from "./TextView";

/** One message's payload, as text or as hex: decompressed where it can be, and of an event its data. */
export function PayloadView({ api, session, message, onClose }: { api: Api; session: number; message: StreamMessage; onClose: () => void }) {
	const binary = message.type === "binary" || message.problem !== undefined;
	const [mode, setMode] = useState<"text" | "hex">(binary ? "hex" : "text");
	const decodes = !message.problem && (message.compressed === true || message.type === "event");
	const [wanted, setWanted] = useState<"decoded" | "wire">("decoded");
	const representation = decodes && wanted === "decoded" ? "decoded" : "wire";
	const source = useMemo(
		() => new BodySource(api, api.payload(session, message.number, representation === "decoded" ? { as: "decoded" } : {}), "asked"),
		[api, session, message.number, representation],
	);
	useEffect(() => source.start(), [source]);
	const tools = (
		<>
			<span className="seg" role="group" aria-label="Show the message as">
				<button type="button" aria-pressed={mode === "text"} onClick={() => setMode("text")}>
					Text
				</button>
				<button type="button" aria-pressed={mode === "hex"} onClick={() => setMode("hex")}>
					Hex
				</button>
			</span>
			{decodes && (
				<span className="seg" role="group" aria-label="What of the message">
					<button type="button" aria-pressed={representation === "decoded"} onClick={() => setWanted("decoded")}>
						{message.type === "event" ? "Data" : "Decoded"}
					</button>
					<button type="button" aria-pressed={representation === "wire"} onClick={() => setWanted("wire")}>
						{message.type === "event" ? "Lines" : "Compressed"}
					</button>
				</span>
			)}
		</>
	);
	const download = (
		<>
			<a className="button quiet" href={api.payload(session, message.number, { ...(representation === "decoded" ? { as: "decoded" } : {}), download: "" })} download>
				Download
			</a>
			<button type="button" className="quiet" aria-label="Close the message" onClick={onClose}>
				×
			</button>
		</>
	);
	const View = mode === "text" ? TextView : HexView;
	return (
		<section className={pane.lower} aria-label={`Message ${message.number}`}>
			{message.problem && (
				<p className={styles.problem} role="note">
					{message.problem[0]?.toUpperCase()}
					{message.problem.slice(1)}.
				</p>
			)}
			<View key={representation} source={source} contentType="text/plain; charset=utf-8" tools={tools} download={download} sha256={undefined} />
		</section>
	);
}
