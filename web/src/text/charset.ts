// Which character encoding a body's text is in. The labels are those of the Encoding Standard, which TextDecoder reads.

/** The charset parameter of a media type; empty where there is none. */
export function charsetParameter(contentType: string): string {
	return /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(contentType)?.[1] ?? "";
}

function known(label: string): string | undefined {
	try {
		return new TextDecoder(label).encoding;
	} catch {
		return undefined;
	}
}

function byteOrderMark(bytes: Uint8Array): string | undefined {
	if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return "utf-8";
	if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
	if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
	return undefined;
}

/** What the document says of itself, in its first 1024 bytes: an XML declaration, or HTML's meta. */
function declared(bytes: Uint8Array): string | undefined {
	const start = new TextDecoder("windows-1252").decode(bytes.subarray(0, 1024));
	const found =
		/^<\?xml[^>]*\bencoding\s*=\s*["']([^"']+)/i.exec(start) ?? /<meta[^>]*\bcharset\s*=\s*["']?\s*([^"'\s/>;]+)/i.exec(start);
	const label = found?.[1] && known(found[1]);
	// A declaration that could be read as ASCII cannot be in UTF-16: HTML Standard, "change the encoding".
	return label?.startsWith("utf-16") ? "utf-8" : label;
}

function validUtf8(bytes: Uint8Array): boolean {
	try {
		// A character that the piece's end cuts is no error: hence stream.
		new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
		return true;
	} catch {
		return false;
	}
}

/**
 * The encoding of a text that begins with these bytes: by its byte order mark, by its media type, by what it says of itself,
 * else UTF-8 where it is that, else windows-1252, in which every byte is a character.
 */
export function charsetOf(contentType: string, start: Uint8Array): string {
	return (
		byteOrderMark(start) ??
		known(charsetParameter(contentType)) ??
		declared(start) ??
		(validUtf8(start) ? "utf-8" : "windows-1252")
	);
}

/** Whether a body of this media type is better read as text than as hex. */
export function isText(contentType: string): boolean {
	const type = (contentType.split(";")[0] ?? "").trim().toLowerCase();
	return (
		type === "" ||
		type.startsWith("text/") ||
		/[/+-](json|xml|javascript|ecmascript|yaml|x-www-form-urlencoded|graphql|x-ndjson|sql|toml|x-sh|csv)$/.test(type)
	);
}

/** Whether a media type is JSON. */
export function isJson(contentType: string): boolean {
	return /[/+]json$/.test((contentType.split(";")[0] ?? "").trim().toLowerCase());
}
