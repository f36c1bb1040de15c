// The hex view's text: what one row of it says, and how an offset is written and read.

const byteDigits = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** How many hex digits an offset into a body of this size needs: an even number, at least eight. */
export function offsetDigits(size: number): number {
	const needed = Math.max(0, size - 1).toString(16).length;
	return Math.max(8, needed + (needed % 2));
}

/** An offset as pairs of digits, "00 FA 00 00 00". */
export function formatOffset(offset: number, digits: number): string {
	const text = offset.toString(16).toUpperCase().padStart(digits, "0");
	return text.replace(/..(?=.)/g, "$& ");
}

/** The bytes of a row as hex, with a wider gap in the middle, padded to `width` bytes. */
export function hexOf(bytes: Uint8Array, width: number): string {
	let text = "";
	for (let at = 0; at < width; at++) {
		if (at > 0) text += at % 8 === 0 ? "  " : " ";
		const byte = bytes[at];
		text += byte === undefined ? "  " : byteDigits[byte];
	}
	return text;
}

/** The bytes of a row as ASCII; what cannot be printed is a middle dot. */
export function asciiOf(bytes: Uint8Array): string {
	let text = "";
	for (const byte of bytes) text += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·";
	return text;
}

const units: Record<string, number> = {
	"": 1,
	b: 1,
	k: 1e3,
	kb: 1e3,
	m: 1e6,
	mb: 1e6,
	g: 1e9,
	gb: 1e9,
	kib: 2 ** 10,
	mib: 2 ** 20,
	gib: 2 ** 30,
};

/**
 * Reads where a person wants to go in a body of this size: "4194304", "4,194,304", "0xFA00", "1.5 GB", "4 MiB", "50%", "end".
 * Undefined where that is not a place in the body.
 */
export function parseOffset(text: string, size: number): number | undefined {
	const word = text.trim().toLowerCase().replaceAll(/[,_\s]/g, "");
	const last = Math.max(0, size - 1);
	let offset: number | undefined;
	if (word === "end") offset = last;
	else if (/^0x[0-9a-f]+$/.test(word)) offset = Number.parseInt(word.slice(2), 16);
	else {
		const found = /^(\d+(?:\.\d+)?)(%|[a-z]*)$/.exec(word);
		const value = Number(found?.[1]);
		const unit = found?.[2];
		if (unit === "%") offset = Math.floor((last * value) / 100);
		else if (unit !== undefined && unit in units) offset = Math.floor(value * (units[unit] ?? 1));
	}
	return offset !== undefined && offset <= last ? offset : undefined;
}
