import { type FormEvent, type ReactNode, useEffect, useId, useState } from "react";
import { type Limit, limitText, lossOf } from "../limits";
import type { Dashboard } from "../state/dashboard";
import { type HostList, type Outbound, own } from "../state/outbound";
import { useStore } from "../state/store";
import { useAttempt } from "../state/useAttempt";
import type { OutboundSettings } from "../types";
import { Modal } from "../ui/Modal";
import styles from "./SettingsDialog.module.css";

/** How servers are reached, what is set about hosts, and how much is kept. What the start set is shown, and cannot be changed here. */
export function SettingsDialog({ dashboard, onClose }: { dashboard: Dashboard; onClose: () => void }) {
	const { outbound } = dashboard;
	const { settings, problem } = useStore(outbound.state);
	useEffect(() => {
		outbound.load();
	}, [outbound]);
	return (
		<Modal title="Settings" onClose={onClose}>
			<p>
				They hold at once, for new connections, and are kept. A host is written as <span className="data">api.example</span>,{" "}
				<span className="data">*.example</span> for the names below, <span className="data">.example</span> for both, or an address or network.
			</p>
			{settings && (
				<>
					<Limits dashboard={dashboard} settings={settings} />
					<Hosts outbound={outbound} list="passthrough" settings={settings} title="Pass through unread">
						For clients that accept only certificates they know, and for what is nobody's business.
					</Hosts>
					<Hosts outbound={outbound} list="insecure_hosts" settings={settings} title="Accept a bad certificate">
						Self-signed or expired. The session says what is wrong with it.
					</Hosts>
					<OldestTLS outbound={outbound} settings={settings} />
					<ClientCertificates outbound={outbound} settings={settings} />
					<UpstreamProxy outbound={outbound} settings={settings} />
					<Hosts outbound={outbound} list="no_proxy" settings={settings} title="Reach without the upstream proxy">
						Here a name means those below it, too. This machine is always reached directly.
					</Hosts>
				</>
			)}
			{!settings && problem && (
				<p className="bad" role="alert">
					{problem}
				</p>
			)}
		</Modal>
	);
}

interface Part {
	outbound: Outbound;
	settings: OutboundSettings;
}

interface SectionProps {
	outbound: Outbound;
	title: string;
	hint: ReactNode;
	entries: ReactNode;
	/** Reports whether it worked: then the form is emptied. */
	add?: (form: FormData) => Promise<boolean>;
	/** What is to be agreed to before; empty for nothing. */
	ask?: (form: FormData) => string;
	action?: string;
	children?: ReactNode;
}

/** A heading, what is set, and a form that sets more. */
function Section(props: SectionProps) {
	const id = useId();
	const [problem, attempt] = useAttempt(props.outbound);
	const [question, ask] = useQuestion(props.action ?? "Add");
	const { add } = props;
	const submit = (event: FormEvent<HTMLFormElement>) => {
		event.preventDefault();
		const form = event.currentTarget;
		const data = new FormData(form);
		ask(props.ask?.(data) ?? "", async () => {
			if (add && (await attempt(() => add(data)))) form.reset();
		});
	};
	return (
		<section className={styles.section} aria-labelledby={id}>
			<h3 id={id}>{props.title}</h3>
			<p className="dim">{props.hint}</p>
			<ul className={styles.entries}>{props.entries}</ul>
			{add && (
				<form className={styles.form} onSubmit={submit} onChange={() => ask("")}>
					{props.children}
					<button type="submit" className="quiet">
						{props.action ?? "Add"}
					</button>
				</form>
			)}
			{question}
			<Problem text={problem} />
		</section>
	);
}

/** Asks before work, where it was begun. Work that nothing is to be asked about is done at once; no work takes the question back. */
function useQuestion(action: string): [question: ReactNode, ask: (text: string, work?: () => void) => void] {
	const [asked, setAsked] = useState<{ text: string; work: () => void }>();
	const ask = (text: string, work?: () => void) => {
		setAsked(text === "" || !work ? undefined : { text, work });
		if (text === "") work?.();
	};
	if (!asked) return [null, ask];
	const question = (
		<div className={styles.question} role="group" aria-label="Sessions would be deleted">
			<p ref={comeIntoView} role="alert">
				{asked.text}
			</p>
			<button type="button" className="danger" onClick={() => ask("", asked.work)}>
				{action}
			</button>
			<button type="button" className="quiet" onClick={() => ask("")}>
				Cancel
			</button>
		</div>
	);
	return [question, ask];
}

function comeIntoView(element: HTMLElement | null): void {
	element?.scrollIntoView({ block: "nearest" });
}

/** What did not work, where it was tried. It comes into view. */
function Problem({ text: problem }: { text: string }) {
	if (problem === "") return null;
	return (
		<p key={problem} ref={comeIntoView} className={styles.problem} role="alert">
			{problem}
		</p>
	);
}

/** One thing that is set, and the button that takes it away where it was set here. */
function Entry(props: { outbound: Outbound; name: string; from: string; children?: ReactNode; ask?: () => string; onRemove: () => Promise<boolean> }) {
	const [problem, attempt] = useAttempt(props.outbound);
	const [question, ask] = useQuestion("Remove");
	return (
		<li>
			<span className="data">{props.name}</span>
			<span className="dim">{props.children}</span>
			{props.from === "dashboard" ? (
				<button type="button" aria-label={`Remove ${props.name}`} onClick={() => ask(props.ask?.() ?? "", () => attempt(props.onRemove))}>
					×
				</button>
			) : (
				<span className="dimmer">set by {props.from}</span>
			)}
			{question}
			<Problem text={problem} />
		</li>
	);
}

const limits: Record<Limit, { name: string; example: string }> = {
	max_bytes: { name: "disk", example: "50GB" },
	max_age: { name: "time", example: "7d" },
	max_sessions: { name: "sessions", example: "100000" },
};
const limitNames = Object.keys(limits) as Limit[];

function Limits({ dashboard, settings }: { dashboard: Dashboard; settings: OutboundSettings }) {
	const { outbound } = dashboard;
	const free = limitNames.filter((each) => settings[each].from === "default" || settings[each].from === "dashboard");
	const [chosen, choose] = useState(free[0]);
	const loss = (limit: Limit, value: string) => {
		const store = (dashboard.traffic.get() ?? dashboard.status.get())?.store;
		return lossOf(limit, value, settings, store, Date.now());
	};
	const form = {
		add: async (data: FormData) => {
			const worked = await outbound.change({ [text(data, "limit")]: text(data, "value") });
			if (worked) choose(free[0]); // the form is emptied
			return worked;
		},
		ask: (data: FormData) => loss(text(data, "limit") as Limit, text(data, "value")),
		action: "Set",
	};
	return (
		<Section
			outbound={outbound}
			title="How much is kept"
			hint="Beyond a limit the oldest sessions are deleted for good, but for pinned and shared ones. A size as 50GB, a time as 7d or 36h, a number of sessions, or none."
			entries={limitNames.map((each) => (
				<Entry
					outbound={outbound}
					key={each}
					name={`${limits[each].name}: ${limitText(each, settings[each].value)}`}
					from={settings[each].from}
					ask={() => loss(each, "")}
					onRemove={() => outbound.change({ [each]: "" })}
				/>
			))}
			{...(free.length > 0 && form)}
		>
			<select name="limit" aria-label="Limit" onChange={(event) => choose(event.target.value as Limit)}>
				{free.map((each) => (
					<option key={each} value={each}>
						{limits[each].name}
					</option>
				))}
			</select>
			<input name="value" aria-label="How much" placeholder={chosen && limits[chosen].example} required maxLength={100} spellCheck={false} autoCapitalize="off" />
		</Section>
	);
}

function HostInput() {
	return <input name="host" aria-label="Host" placeholder="api.example" required maxLength={300} spellCheck={false} autoCapitalize="off" />;
}

const text = (form: FormData, name: string) => String(form.get(name) ?? "").trim();

function Hosts({ outbound, settings, list, title, children }: Part & { list: HostList; title: string; children: ReactNode }) {
	return (
		<Section
			outbound={outbound}
			title={title}
			hint={children}
			entries={settings[list].map(({ host, from }) => (
				<Entry outbound={outbound} key={`${from} ${host}`} name={host} from={from} onRemove={() => outbound.setHost(list, host, false)} />
			))}
			add={(form) => outbound.setHost(list, text(form, "host"), true)}
		>
			<HostInput />
		</Section>
	);
}

function OldestTLS({ outbound, settings }: Part) {
	const others = (than: string) =>
		own(settings.min_tls)
			.filter((each) => each.host !== than)
			.map(({ host, version }) => ({ host, version }));
	return (
		<Section
			outbound={outbound}
			title="Oldest TLS"
			hint="1.2 for every host that is not named here. Older versions are not safe."
			entries={settings.min_tls.map(({ host, version, from }) => (
				<Entry outbound={outbound} key={`${from} ${host}`} name={host} from={from} onRemove={() => outbound.change({ min_tls: others(host) })}>
					TLS {version}
				</Entry>
			))}
			add={(form) => {
				const host = text(form, "host");
				return outbound.change({ min_tls: [...others(host), { host, version: text(form, "version") as "1.0" }] });
			}}
		>
			<HostInput />
			<select name="version" aria-label="Version" defaultValue="1.0">
				{["1.0", "1.1", "1.2", "1.3"].map((version) => (
					<option key={version}>{version}</option>
				))}
			</select>
		</Section>
	);
}

function ClientCertificates({ outbound, settings }: Part) {
	const others = (than: string) =>
		own(settings.client_certs)
			.filter((each) => each.host !== than)
			.map((each) => ({ host: each.host }));
	return (
		<Section
			outbound={outbound}
			title="Client certificates"
			hint="For servers that ask for one. The files hold, as PEM, the certificate and its private key, which is not shown again."
			entries={settings.client_certs.map(({ host, from, subject, not_after, problem }) => (
				<Entry outbound={outbound} key={`${from} ${host}`} name={host} from={from} onRemove={() => outbound.change({ client_certs: others(host) })}>
					{problem ?? `${subject ?? ""}, until ${(not_after ?? "").slice(0, 10)}`}
				</Entry>
			))}
			add={async (form) => {
				const host = text(form, "host");
				const files = form.getAll("files").filter((each): each is File => each instanceof File);
				const pem = (await Promise.all(files.map((file) => file.text()))).join("\n");
				return outbound.change({ client_certs: [...others(host), { host, pem }] });
			}}
		>
			<HostInput />
			<input name="files" type="file" aria-label="Certificate and key" multiple required accept=".pem,.crt,.cer,.key" />
		</Section>
	);
}

function UpstreamProxy({ outbound, settings }: Part) {
	const now = settings.upstream_proxy;
	const fixed = now !== undefined && now.from !== "dashboard";
	const add = { add: (form: FormData) => outbound.change({ upstream_proxy: text(form, "url") }), action: "Set" };
	return (
		<Section
			outbound={outbound}
			title="Upstream proxy"
			hint="Another proxy through which servers are reached: http, https or socks5, with user name and password where it wants them."
			entries={
				now && (
					<Entry outbound={outbound} name={now.url} from={now.from} onRemove={() => outbound.change({ upstream_proxy: "" })}>
						{now.has_password && "with a password"}
					</Entry>
				)
			}
			{...(fixed ? {} : add)}
		>
			<input name="url" aria-label="URL of the proxy" placeholder="http://user:password@proxy.example:3128" required maxLength={1000} spellCheck={false} autoCapitalize="off" autoComplete="off" />
		</Section>
	);
}
