import { formatBytes, formatCount, formatDuration } from "../format";
import type { Body, Session } from "../types";
import { endUnknown, flagWords, stateMeaning, story, unusual } from "../words";
import styles from "./Overview.module.css";
import { phasesOf } from "./phases";

/** What happened, in words; then how long it took, and how much it was. */
export function Overview({ session }: { session: Session }) {
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
			<section>
				<h3>Bodies</h3>
				<dl className={styles.facts}>
					<BodyFacts name="Request" body={request.body} />
					<BodyFacts name="Response" body={response.body} type={session.content_type} />
				</dl>
			</section>
			<section>
				<h3>Connection</h3>
				<dl className={styles.facts}>
					<Fact name="Client" value={session.client} />
					<Fact name="Asked for" value={session.host} />
					<Fact name="Upstream" value={session.upstream} />
					<Fact name="To upstream" value={session.flags.includes("reused") ? "a connection that had served before" : ""} />
					<Fact name="Protocol" value={session.protocol} />
					<Fact name="Server name (SNI)" value={tls?.server_name} />
					<Fact name="ALPN" value={tls?.alpn} />
					<Fact name="TLS with the client" value={join(tls?.client_version, tls?.client_cipher)} />
					<Fact name="TLS with upstream" value={join(tls?.upstream_version, tls?.upstream_cipher)} />
					<Fact name="Certificate" value={tls?.upstream_error} bad />
					<Fact name="Note" value={session.note} />
				</dl>
			</section>
		</div>
	);
}

function join(version: string | undefined, cipher: string | undefined): string {
	return [version, cipher].filter(Boolean).join(", ");
}

function Fact({ name, value, bad }: { name: string; value: string | undefined; bad?: boolean }) {
	if (!value) return null;
	return (
		<div>
			<dt>{name}</dt>
			<dd className={bad ? "bad" : "data"}>{value}</dd>
		</div>
	);
}

function Missing({ side, body }: { side: string; body: Body }) {
	if (!body.missing) return null;
	return (
		<p className={styles.error}>
			The {side} body was {body.missing}. {formatBytes(body.passed)} passed.
		</p>
	);
}

function BodyFacts({ name, body, type }: { name: string; body: Body; type?: string }) {
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
						<span className="dim"> {[`${formatCount(body.size)} bytes`, words, body.coding, type].filter(Boolean).join(" · ")}</span>
						{body.sha256 && <div className={`data ${styles.hash}`}>sha256 {body.sha256}</div>}
					</>
				)}
			</dd>
		</div>
	);
}

function Timing({ session }: { session: Session }) {
	const { phases, total } = phasesOf(session);
	return (
		<table className={styles.timing}>
			<tbody>
				{phases.map((phase) => (
					<tr key={phase.name}>
						<th scope="row">{phase.name}</th>
						<td className="num">{formatDuration(phase.duration)}</td>
						<td className={styles.bars} aria-hidden="true">
							<i
								className={phase.kind === "get" ? styles.get : styles.wait}
								style={{ left: `${(100 * phase.start) / total}%`, width: `${(100 * phase.duration) / total}%` }}
							/>
						</td>
					</tr>
				))}
				<tr className={styles.total}>
					<th scope="row">{session.state === "open" ? "So far" : "Total"}</th>
					<td className="num">{endUnknown(session) ? "—" : formatDuration(session.duration)}</td>
				</tr>
			</tbody>
		</table>
	);
}
