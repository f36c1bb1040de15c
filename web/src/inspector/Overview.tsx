import type { Api } from "../client";
import { formatBytes, formatCount } from "../format";
import type { Outbound } from "../state/outbound";
import type { Body, Message, Session } from "../types";
import { flagWords, framingWords, hashWord, stateMeaning, story, unusual } from "../words";
import { Certificates } from "./Certificates";
import { Fact, Facts } from "./Facts";
import { ChunkExtensions, Frames } from "./Frames";
import { HostActions } from "./HostActions";
import { Note } from "./Note";
import styles from "./Overview.module.css";
import { Timing } from "./Timing";

interface OverviewProps {
	api: Api;
	session: Session;
	outbound: Outbound | undefined;
	onNote: ((id: number, note: string) => Promise<void>) | undefined;
}

/** What happened, in words; then how long it took, and how much it was. */
export function Overview({ api, session, outbound, onNote }: OverviewProps) {
	const { request, response, tls } = session;
	const flags = unusual(session.flags);
	const bad = session.state !== "open" && session.state !== "done";
	return (
		<div className={styles.overview} tabIndex={-1}>
			<section className={`${styles.story} ${bad ? styles.bad : ""}`}>
				<p>{story(session)}</p>
				<p className="dim">{stateMeaning[session.state]}</p>
				<Missing side="request" body={request.body} />
				<Missing side="response" body={response.body} />
				{session.state !== "open" && !session.durable && <p className="dim">It is not yet safe from a power cut; that takes a moment.</p>}
			</section>
			{onNote && <Note key={session.id} id={session.id} note={session.note} onNote={onNote} />}
			{flags.length > 0 && (
				<section>
					<h3>What is unusual</h3>
					<dl className={styles.facts}>
						{flags.map((flag) => (
							<div key={flag}>
								<dt>{flagWords(flag).word}</dt>
								<dd>{flagWords(flag).meaning}</dd>
							</div>
						))}
					</dl>
				</section>
			)}
			<section>
				<h3>Time</h3>
				<Timing session={session} />
			</section>
			<Facts title="Bodies">
				<BodyFacts name="Request" message={request} />
				<BodyFacts name="Response" message={response} type={session.content_type} />
			</Facts>
			{session.grpc && (
				<Facts title="gRPC">
					<Fact name="Status" bad={session.grpc.status !== 0}>
						{session.grpc.name} ({session.grpc.status})
					</Fact>
					<Fact name="Message">{session.grpc.message}</Fact>
				</Facts>
			)}
			<ChunkExtensions message={request} side="request" />
			<ChunkExtensions message={response} side="response" />
			<Facts title="Connection">
				<Fact name="Client">{session.client}</Fact>
				<Fact name="Asked for">{join(session.host, session.host_unicode)}</Fact>
				<Fact name="Upstream">{session.upstream}</Fact>
				<Fact name="To upstream">{toUpstream(session.flags)}</Fact>
				<Fact name="Protocol">{session.protocol}</Fact>
				<Fact name="Server name (SNI)">{tls?.server_name}</Fact>
				<Fact name="ALPN">{tls?.alpn}</Fact>
				<Fact name="TLS with the client">{join(tls?.client_version, tls?.client_cipher)}</Fact>
				<Fact name="TLS with upstream">{join(tls?.upstream_version, tls?.upstream_cipher)}</Fact>
				<Fact name="Certificate" bad>
					{tls?.upstream_error}
				</Fact>
				<Fact name="Client's fingerprint (JA4)">{tls?.ja4}</Fact>
			</Facts>
			{outbound && <HostActions key={session.host} outbound={outbound} session={session} />}
			{tls?.certificates && <Certificates key={session.id} api={api} id={session.id} />}
			<Frames http2={session.http2} />
		</div>
	);
}

function toUpstream(flags: readonly string[]): string {
	return [flags.includes("upstream_proxy") && "through the upstream proxy", flags.includes("reused") && "a connection that had served before"].filter(Boolean).join(", ");
}

function join(version: string | undefined, cipher: string | undefined): string {
	return [version, cipher].filter(Boolean).join(", ");
}

function Missing({ side, body }: { side: string; body: Body }) {
	if (!body.missing) return null;
	return (
		<p className={styles.error}>
			The {side} body was {body.missing}. {formatBytes(body.passed)} passed.
		</p>
	);
}

function BodyFacts({ name, message, type }: { name: string; message: Message; type?: string }) {
	const { body, framing } = message;
	const words = body.complete ? "complete" : body.size < body.passed ? "cut" : body.size === 0 ? "" : "not complete";
	return (
		<div>
			<dt>{name}</dt>
			<dd>
				{body.size === 0 && body.passed === 0 ? (
					<span className="dim">no body</span>
				) : (
					<>
						<span className={styles.size}>{formatBytes(body.size)}</span>
						<span className="dim"> {[`${formatCount(body.size)} bytes`, words, framing && framingWords[framing], body.coding, type].filter(Boolean).join(" · ")}</span>
						{body.sha256 && <div className={`data ${styles.hash}`}>{hashWord(body)} {body.sha256}</div>}
					</>
				)}
			</dd>
		</div>
	);
}
