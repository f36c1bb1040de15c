import { useMemo } from "react";
import type { Api } from "../client";
import { formatDay, formatTime } from "../format";
import { CertificateSource } from "../state/certificates";
import { useStore } from "../state/store";
import type { Certificate } from "../types";
import { saveText } from "../ui/save";
import styles from "./Certificates.module.css";
import { Fact } from "./Facts";
import facts from "./Overview.module.css";

/** The certificates that upstream showed, read when they are first looked at. */
export function Certificates({ api, id }: { api: Api; id: number }) {
	const source = useMemo(() => new CertificateSource(api, id), [api, id]);
	const { list, problem, now } = useStore(source.state);
	return (
		<details className={styles.all} onToggle={(event) => event.currentTarget.open && source.load()}>
			<summary>
				<h3>Upstream's certificates</h3>
			</summary>
			{problem && <p className="bad">{problem}</p>}
			{list?.length === 0 && <p className="dim">None is kept.</p>}
			{list?.map((certificate, at) => (
				<Shown key={certificate.sha256} certificate={certificate} at={at} now={now} />
			))}
			{list && list.length > 1 && (
				<button type="button" className="quiet" onClick={() => saveText(`session-${id}-chain.pem`, list.map((certificate) => certificate.pem).join(""))}>
					Download all as PEM
				</button>
			)}
		</details>
	);
}

function Shown({ certificate, at, now }: { certificate: Certificate; at: number; now: number }) {
	const { subject, issuer, not_before: from, not_after: until, names, sha256, pem } = certificate;
	const bad = now < Date.parse(from) ? "not valid yet" : now > Date.parse(until) ? "expired" : "";
	return (
		<section className={styles.one} aria-label={`Certificate ${at + 1}`}>
			<dl className={facts.facts}>
				<Fact name="Subject">{subject || <span className="dim">(empty)</span>}</Fact>
				<Fact name="Issuer">{issuer === subject ? <span className="dim">itself</span> : issuer}</Fact>
				<Fact name="Valid">
					{day(from)} to {day(until)} {bad && <span className="bad">{bad}</span>}
				</Fact>
				<Fact name="For">{names.join(", ")}</Fact>
				<Fact name="SHA-256">
					<span className={styles.hash}>{sha256}</span>
				</Fact>
			</dl>
			<button type="button" className="quiet" aria-label={`Download certificate ${at + 1} as PEM`} onClick={() => saveText(`${sha256.slice(0, 16)}.pem`, pem)}>
				PEM
			</button>
		</section>
	);
}

/** A moment as a local day, and the time where it is today. */
function day(time: string): string {
	return formatDay(time) || `today ${formatTime(time).slice(0, 5)}`;
}
