/** Splits host:port, also [::1]:8080. */
export function splitAddress(address: string): { host: string; port: string } {
	const at = address.lastIndexOf(":");
	return { host: address.slice(0, at).replaceAll(/^\[|\]$/g, ""), port: address.slice(at + 1) };
}

/** Where a client on Millpond's own machine reaches a listener: one that listens on every address is reached on loopback. */
export function localProxy(address: string): string {
	const { host, port } = splitAddress(address);
	if (host === "0.0.0.0" || host === "::" || host === "") return `127.0.0.1:${port}`;
	return address;
}

/**
 * Where devices reach the proxy, the likeliest first: what the server knows of, after the name by which this page was reached from another machine, which
 * is known to lead here. The server does not know it where it is in a container, or behind a name.
 */
export function deviceAddresses(known: string[], page: string): string[] {
	const host = page.replaceAll(/^\[|\]$/g, "");
	const [first] = known;
	if (first === undefined || isLoopback(host)) return known;
	const here = `${host.includes(":") ? `[${host}]` : host}:${splitAddress(first).port}`;
	return [here, ...known.filter((each) => each !== here)];
}

/** Whether a host name, as a page's address has it, leads only to the machine it is used on. */
export function isLoopback(host: string): boolean {
	const name = host.toLowerCase().replaceAll(/^\[|\]$/g, "");
	return name === "localhost" || name.endsWith(".localhost") || name === "::1" || /^127(\.\d{1,3}){3}$/.test(name);
}
