import { localProxy, splitAddress } from "../address";
import type { Dashboard } from "../state/dashboard";
import { useStore } from "../state/store";
import { Copyable } from "../ui/Copyable";
import { Modal } from "../ui/Modal";
import styles from "./dialogs.module.css";

/** How a device is connected: where the proxy is, and the certificate that the device must trust. */
export function ConnectDialog({ dashboard, onClose }: { dashboard: Dashboard; onClose: () => void }) {
	const status = useStore(dashboard.status);
	if (!status) return null;
	const { port } = splitAddress(status.proxy);
	const reachable = status.addresses.length > 0;
	return (
		<Modal title="Connect a device" onClose={onClose}>
			{!reachable && (
				<div className={styles.notice} role="note">
					<p>
						<b>Only this machine can use the proxy:</b> it listens on loopback, <span className="data">{status.proxy}</span>. For phones and other
						machines, start Millpond again with these flags, and a user name and a password of your own that the device is then to give:
					</p>
					<Copyable label="the flags" text={`--proxy 0.0.0.0:${port} --proxy-auth USER:PASSWORD`} />
				</div>
			)}
			<ol className={styles.steps}>
				<li>{reachable ? "Bring the device into the same network as this machine." : "Use a client on this machine, such as a browser or curl."}</li>
				<li>
					In its network settings, set a manual HTTP proxy:
					<table className={styles.addresses}>
						<thead>
							<tr>
								<th scope="col">Server</th>
								<th scope="col">Port</th>
							</tr>
						</thead>
						<tbody>
							{(reachable ? status.addresses : [localProxy(status.proxy)]).map((address) => (
								<tr key={address}>
									<td className="data">{splitAddress(address).host}</td>
									<td className="data">{splitAddress(address).port}</td>
								</tr>
							))}
						</tbody>
					</table>
				</li>
				<li>
					Fetch the CA certificate: on the device at <span className="data">{status.setup}</span>, or here as{" "}
					<a href={dashboard.api.url("ca")} download="millpond-ca.pem">
						PEM
					</a>{" "}
					or{" "}
					<a href={dashboard.api.url("ca", { form: "der" })} download="millpond-ca.der">
						DER
					</a>
					.
				</li>
				<li>
					Install it, and trust it for web sites: on iOS under General › About › Certificate Trust Settings, on Android under Security ›
					Encryption &amp; credentials, in Firefox under Certificates › Authorities.
				</li>
				<li>Open any page on the device. Its sessions appear here as they happen.</li>
			</ol>
			<p>The certificate is made once for this data directory. Its key never leaves this machine; remove it from the device when you are done.</p>
		</Modal>
	);
}
