// Text of the wire, which the API gives with one character for each byte.

/** The text as people read it: as UTF-8 where its bytes are that, else as it is (which is latin-1). Control characters become pictures. */
export function readable(text: string): string {
	return /[\u0080-\u00ff]/.test(text) ? picture(asUtf8(text)) : picture(text);
}

function asUtf8(text: string): string {
	const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
	try {
		const read = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
		// A character beyond a byte was no byte of the wire: the text was Unicode all along.
		return /[\u0100-\uffff]/.test(text) ? text : read;
	} catch {
		return text;
	}
}

/** Control characters as their pictures, and those that turn text around as a replacement, so that nothing hides. Tabs stay. */
export function picture(text: string): string {
	return text.replaceAll(/[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu, (character) => {
		const code = character.charCodeAt(0);
		if (character === "\t") return character;
		if (code === 0x7f) return "␡";
		return code < 0x20 ? String.fromCharCode(0x2400 + code) : "�";
	});
}
