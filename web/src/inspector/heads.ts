// Reading a head that the server gives as text only: as received, or informational.

/** The start line of an HTTP/1 head. HTTP/2 has none: its head is fields alone, of which the first begins with a colon. */
export function startLine(head: string): string {
	const line = (head.split("\n", 1)[0] ?? "").replace(/\r$/, "");
	return line.startsWith(":") ? "" : line;
}

/** A head's start line and fields, in order, as they are spelt. A line without a colon, or a folded one, stays what it is. */
export function readHead(head: string): { start: string; fields: [string, string][] } {
	const start = startLine(head);
	const lines = head.split("\n").map((line) => line.replace(/\r$/, ""));
	const fields = lines
		.slice(start === "" ? 0 : 1)
		.filter((line) => line !== "")
		.map((line): [string, string] => {
			// An HTTP/2 pseudo-field begins with the colon that is part of its name.
			const colon = line.indexOf(":", 1);
			if (colon < 0 || line.startsWith(" ") || line.startsWith("\t")) return ["", line];
			return [line.slice(0, colon), line.slice(colon + 1).trim()];
		});
	return { start, fields };
}
