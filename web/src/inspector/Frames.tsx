import { formatCount } from "../format";
import { readable } from "../text/wire";
import type { GoAway, HTTP2, Message, Setting, Side } from "../types";
import { partyWords } from "../words";
import { Fact, Facts } from "./Facts";
import styles from "./Overview.module.css";

/** What HTTP/2 frames said beside fields and data. */
export function Frames({ http2 }: { http2: HTTP2 | undefined }) {
	if (!http2) return null;
	return (
		<Facts title="HTTP/2">
			<Fact name="Stream">{http2.stream_id > 0 && formatCount(http2.stream_id)}</Fact>
			<Fact name="Reset">{http2.reset && `${http2.reset.name} (${http2.reset.code}), by ${partyWords[http2.reset.by]}`}</Fact>
			{http2.goaway?.map((frame) => (
				<Fact key={frame.by} name="GOAWAY">
					{goAwayWords(frame)}
				</Fact>
			))}
			<Settings name="Client's settings" list={http2.settings.client} />
			<Settings name="Upstream's settings" list={http2.settings.upstream} />
		</Facts>
	);
}

function goAwayWords(frame: GoAway): string {
	const words = `${frame.name} (${frame.code}), by ${partyWords[frame.by]}; last stream ${formatCount(frame.last_stream_id)}`;
	if (frame.debug === "") return words;
	const cut = frame.debug_bytes > frame.debug.length ? `… (${formatCount(frame.debug_bytes)} bytes)` : "";
	return `${words}: “${readable(frame.debug)}”${cut}`;
}

function Settings({ name, list }: { name: string; list: readonly Setting[] }) {
	return (
		<Fact name={name}>
			{list.length === 0 ? (
				<span className="dim">none</span>
			) : (
				<ul className={styles.settings}>
					{list.map((setting) => (
						<li key={setting.id}>
							<span className="dim">{setting.name}</span> {formatCount(setting.value)}
						</li>
					))}
				</ul>
			)}
		</Fact>
	);
}

/** What stood in a chunked body's framing beside the sizes. */
export function ChunkExtensions({ message, side }: { message: Message; side: Side }) {
	const { chunk_extensions: list, chunk_extensions_cut: cut } = message;
	if (!list || list.length === 0) return null;
	return (
		<section>
			<h3>Chunk extensions of the {side}</h3>
			<table className={styles.chunks}>
				<thead>
					<tr>
						<th scope="col">At byte</th>
						<th scope="col">Chunk of</th>
						<th scope="col">Extension</th>
					</tr>
				</thead>
				<tbody>
					{list.map((extension) => (
						<tr key={`${extension.offset} ${extension.size}`}>
							<td className="num">{formatCount(extension.offset)}</td>
							<td className="num">{formatCount(extension.size)}</td>
							<td className="data">{readable(extension.text)}</td>
						</tr>
					))}
				</tbody>
			</table>
			{cut !== undefined && cut > 0 && <p className="dim">{formatCount(cut)} further bytes of extensions passed, and are not kept.</p>}
		</section>
	);
}
