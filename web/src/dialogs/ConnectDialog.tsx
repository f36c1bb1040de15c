import { useEffect, useState } from "react";
import { deviceAddresses, localProxy, splitAddress } from "../address";
import type { Dashboard } from "../state/dashboard";
import { useStore } from "../state/store";
import type { Status } from "../types";
import { Copyable } from "../ui/Copyable";
import { Modal } from "../ui/Modal";
import { QrCode } from "../ui/QrCode";
import styles from "./dialogs.module.css";
import { ReplaceDialog } from "./ReplaceDialog";

/** How a device is connected: where the proxy is, and the certificate that the device must trust. */
export function ConnectDialog({ dashboard, onClose }: { dashboard: Dashboard; onClose: () => void }) {
	const status = useStore(dashboard.status);
	const [replacing, setReplacing] = useState(false);
	const [picked, setPicked] = useState("");
	// Addresses come and go with networks.
	useEffect(() => {
		dashboard.refresh();
	}, [dashboard]);
	if (!status) return null;
	if (replacing) return <ReplaceDialog dashboard={dashboard} authority={status.authority} onClose={() => setReplacing(false)} />;
	const addresses = deviceAddresses(status.addresses, location.hostname);
	const address = addresses.includes(picked) ? picked : addresses[0];
	const { name, fingerprint } = status.authority;
	return (
		<Modal title="Connect a device" onClose={onClose}>
			{address === undefined ? (
				<OnlyHere status={status} />
			) : (
				<Device address={address} addresses={addresses} auth={status.proxy_auth} onPick={setPicked} />
			)}
			<div className={styles.authority}>
				<h3 className={styles.heading}>The certificate authority</h3>
				<p>
					{name}, SHA-256 <code className={styles.print}>{fingerprint}</code>
				</p>
				<div className={styles.actions}>
					{(["pem", "der", "mobileconfig"] as const).map((form) => (
						<a key={form} className="button quiet" href={dashboard.api.url("ca", { form })} download={`millpond-ca.${form === "der" ? "crt" : form}`}>
							{form === "mobileconfig" ? "iOS profile" : form.toUpperCase()}
						</a>
					))}
					<button type="button" className="quiet" onClick={() => setReplacing(true)}>
						Replace it…
					</button>
				</div>
			</div>
		</Modal>
	);
}

/** The way for a phone, or another machine: it scans, and the page that opens there has the rest. */
function Device(props: { address: string; addresses: string[]; auth: boolean; onPick: (address: string) => void }) {
	const { address, addresses, auth, onPick } = props;
	const page = `http://${address}/`;
	const { host, port } = splitAddress(address);
	return (
		<div className={styles.device}>
			<ol className={styles.steps}>
				<li>Bring the device into the same network as this machine, and scan the code, or open its address. The page that opens has the steps for the device.</li>
				<li>
					Set its HTTP proxy to <span className="data">{host}</span>, port <span className="data">{port}</span>
					{auth && (
						<>
							, with the user name and password of <span className={`data ${styles.flag}`}>--proxy-auth</span>
						</>
					)}
					.
				</li>
				<li>Install the certificate from that page, and trust it. The page tells when it is so.</li>
				<li>Open any page on the device. Its sessions appear here as they happen.</li>
			</ol>
			<div className={styles.scan}>
				<QrCode link={page} />
				<a className="data" href={page} target="_blank" rel="noreferrer">
					{page}
				</a>
				{addresses.length > 1 && (
					<label>
						<span className="said">This machine's address</span>
						<select value={address} onChange={(event) => onPick(event.target.value)}>
							{addresses.map((each) => (
								<option key={each} value={each}>
									{each}
								</option>
							))}
						</select>
					</label>
				)}
			</div>
		</div>
	);
}

/** Where no device can come in: how it could, and what works on this machine. */
function OnlyHere({ status }: { status: Status }) {
	const { port } = splitAddress(status.proxy);
	const page = `http://${localProxy(status.proxy)}/`;
	return (
		<>
			<div className={styles.notice} role="note">
				<p>
					<b>Phones and other machines cannot reach the proxy:</b> it listens on loopback, <span className="data">{status.proxy}</span>. For them, start
					Millpond again with these flags, and a user name and a password of your own that the device is then to give:
				</p>
				<Copyable label="the flags" text={`--proxy 0.0.0.0:${port} --proxy-auth USER:PASSWORD`} />
			</div>
			<p>
				For programs on this machine,{" "}
				<a className="data" href={page} target="_blank" rel="noreferrer">
					{page}
				</a>{" "}
				has the commands: browsers, curl, git, Node, Python, Java, Go, Docker.
			</p>
		</>
	);
}
