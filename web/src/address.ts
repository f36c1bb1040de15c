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

/** Whether a host name, as a page's address has it, leads only to the machine it is used on. */
export function isLoopback(host: string): boolean {
	const name = host.toLowerCase().replaceAll(/^\[|\]$/g, "");
	return name === "localhost" || name.endsWith(".localhost") || name === "::1" || /^127(\.\d{1,3}){3}$/.test(name);
}
