import { useEffect, useMemo, useState } from "react";
import type { Api } from "../client";
import { BodySource, type Representation } from "../state/source";
import { useStore } from "../state/store";
import { isText } from "../text/charset";
import type { Session, Side } from "../types";
import styles from "./BodyView.module.css";
import { HexView } from "./HexView";
import { TextView } from "./TextView";

/** The body of one side: as text or as hex, as it passed or decoded. Nothing here ever holds a large one whole. */
export function BodyView(props: { api: Api; session: Session; side: Side; growing: boolean }) {
	const { api, session, side, growing } = props;
	const { body, fields } = session[side];
	const type = side === "response" ? session.content_type : fieldOf(fields, "content-type");
	const [mode, setMode] = useState<"text" | "hex">(isText(type) && !session.flags.some((flag) => flag === "tunnel" || flag === "upgraded") ? "text" : "hex");
	const [wanted, setWanted] = useState<Representation>("decoded");
	const wire = useSource(api, session.id, side, "wire", true);
	const decoded = useSource(api, session.id, side, "decoded", body.coding !== undefined && wanted === "decoded");
	useEffect(() => wire.update(body, growing), [wire, body, growing]);
	const { problem, size } = useStore(decoded.state);
	// A body whose label lies is shown as it passed, with a word about it.
	const lies = problem !== "" && size === 0;
	const representation = body.coding && wanted === "decoded" && !lies ? "decoded" : "wire";
	const source = representation === "decoded" ? decoded : wire;
	const tools = (
		<>
			<span className="seg" role="group" aria-label="Show the body as">
				<button type="button" aria-pressed={mode === "text"} onClick={() => setMode("text")}>
					Text
				</button>
				<button type="button" aria-pressed={mode === "hex"} onClick={() => setMode("hex")}>
					Hex
				</button>
			</span>
			{body.coding && (
				<span className="seg" role="group" aria-label="Content coding">
					<button type="button" aria-pressed={representation === "decoded"} onClick={() => setWanted("decoded")}>
						Decoded
					</button>
					<button type="button" aria-pressed={representation === "wire"} onClick={() => setWanted("wire")}>
						{body.coding}
					</button>
				</span>
			)}
		</>
	);
	const download = <Download api={api} session={session} side={side} coding={body.coding ?? ""} />;
	const View = mode === "text" ? TextView : HexView;
	return (
		<>
			{problem && wanted === "decoded" && (
				<p className={styles.problem} role="note">
					{problem} {lies && "So it is shown as it passed."}
				</p>
			)}
			<View key={`${representation} ${type}`} source={source} contentType={type} tools={tools} download={download} sha256={representation === "wire" && body.complete ? body.sha256 : undefined} />
		</>
	);
}

/** A source that keeps up with its body while it is `used`. */
function useSource(api: Api, id: number, side: Side, representation: Representation, used: boolean): BodySource {
	const source = useMemo(
		() => (representation === "wire" ? new BodySource(api, api.body(id, side), "told") : new BodySource(api, api.body(id, side, { as: "decoded" }), "asked")),
		[api, id, side, representation],
	);
	useEffect(() => (used ? source.start() : undefined), [source, used]);
	return source;
}

/** Plain links, so that the browser writes the bytes to disk as they come: a body of any size, also one that still grows. */
function Download({ api, session, side, coding }: { api: Api; session: Session; side: Side; coding: string }) {
	const wire = api.body(session.id, side, { download: "" });
	if (!coding) {
		return (
			<a className="button quiet" href={wire} download>
				Download
			</a>
		);
	}
	return (
		<>
			<a
				className="button quiet"
				href={api.body(session.id, side, { as: "decoded", download: "" })}
				download
				aria-label="Download decoded"
				title="Download with its content coding undone"
			>
				↓ Decoded
			</a>
			<a className="button quiet" href={wire} download aria-label={`Download as it passed, ${coding}`} title="Download the bytes as they passed">
				↓ {coding}
			</a>
		</>
	);
}

function fieldOf(fields: readonly (readonly [string, string])[], wanted: string): string {
	return fields.find(([name]) => name.toLowerCase() === wanted)?.[1] ?? "";
}
