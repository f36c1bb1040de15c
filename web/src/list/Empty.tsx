import type { Dashboard } from "../state/dashboard";
import { useStore } from "../state/store";
import { localProxy } from "../address";
import { shellWord } from "../text/shell";
import { Copyable } from "../ui/Copyable";
import styles from "./Empty.module.css";

/** What to do when there is nothing to show. */
export function Empty({ dashboard }: { dashboard: Dashboard }) {
	const { filter } = useStore(dashboard.list.state);
	const status = useStore(dashboard.status);
	if (filter !== "") {
		return (
			<div className={styles.empty}>
				<h2>No session matches “{filter}”</h2>
				<button type="button" className="quiet" onClick={() => dashboard.list.setFilter("")}>
					Show all sessions
				</button>
			</div>
		);
	}
	if (!status) return null;
	const proxy = localProxy(status.proxy);
	return (
		<div className={styles.empty}>
			<h2>Nothing captured yet</h2>
			<p>
				Point a client at the proxy <b className="data">{proxy}</b>, and its sessions appear here as they happen. To try it, on the machine that
				Millpond runs on:
			</p>
			<Copyable label="the command that sends a request" text={`curl --proxy http://${proxy} --cacert ${shellWord(status.ca)} https://example.com/`} />
			<p>
				The client has to trust the certificate that this Millpond signs with:{" "}
				<a href={dashboard.api.url("ca")} download="millpond-ca.pem">
					download it
				</a>{" "}
				for clients elsewhere.
			</p>
			<p>
				A browser or a phone takes a few steps more: <b>Connect a device</b>, above, has them.
			</p>
		</div>
	);
}
