// Numbers and times as people read them. Sizes use decimal units (1 kB is 1000 bytes), as browsers and disks do.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 88310 as "88,310". */
export function formatCount(count: number): string {
	return grouped.format(count);
}

/** "1 session", "2 sessions". */
export function formatNumberOf(count: number, one: string, many = `${one}s`): string {
	return `${formatCount(count)} ${count === 1 ? one : many}`;
}

const byteUnits = ["B", "kB", "MB", "GB", "TB", "PB"];

/** A size in bytes: "12 B", "1.8 MB", "611 kB", "13.6 GB". */
export function formatBytes(bytes: number): string {
	let value = bytes;
	let unit = 0;
	// 999,950 rounds to 1000.0 kB, which is 1.0 MB.
	while (unit < byteUnits.length - 1 && Number(value.toFixed(value < 99.95 ? 1 : 0)) >= 1000) {
		value /= 1000;
		unit++;
	}
	if (unit === 0) return `${Math.round(value)} B`;
	return `${value.toFixed(value < 99.95 ? 1 : 0)} ${byteUnits[unit]}`;
}

/** The larger of what was sent and what was received; an arrow where that is what was sent. */
export function formatLarger(sent: number, received: number): string {
	return sent > received ? `↑ ${formatBytes(sent)}` : formatBytes(received);
}

/** A speed in bytes a second. */
export function formatRate(bytesPerSecond: number): string {
	return `${formatBytes(bytesPerSecond)}/s`;
}

/** A duration in milliseconds: "0.4 ms", "212 ms", "38.4 s", "1 min 24 s", "2 h 5 min", "3 d 4 h". */
export function formatDuration(milliseconds: number): string {
	if (milliseconds < 9.95) return `${milliseconds.toFixed(1)} ms`;
	if (milliseconds < 999.5) return `${Math.round(milliseconds)} ms`;
	if (milliseconds < 59_950) return `${(milliseconds / 1000).toFixed(1)} s`;
	const seconds = Math.round(milliseconds / 1000);
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
	const minutes = Math.floor(seconds / 60);
	if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
	const hours = Math.floor(minutes / 60);
	return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A duration in milliseconds for a narrow column: one unit, three figures. "212 ms", "38.4 s", "412 s", "17 min", "2.1 h", "3.2 d". */
export function formatDurationShort(milliseconds: number): string {
	const seconds = milliseconds / 1000;
	if (seconds < 59.95) return formatDuration(milliseconds);
	if (seconds < 999.5) return `${Math.round(seconds)} s`;
	if (seconds < 99.5 * 60) return `${Math.round(seconds / 60)} min`;
	const hours = seconds / 3600;
	return hours < 47.95 ? `${hours.toFixed(1)} h` : `${(hours / 24).toFixed(hours < 2388 ? 1 : 0)} d`;
}

const pad = (value: number, digits: number) => String(value).padStart(digits, "0");

/** The local time of day of an RFC 3339 time, to the millisecond: "14:02:11.480". */
export function formatTime(time: string): string {
	const date = new Date(time);
	if (Number.isNaN(date.getTime())) return "";
	const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => pad(part, 2)).join(":");
	return `${clock}.${pad(date.getMilliseconds(), 3)}`;
}

/** The local day of an RFC 3339 time where it is not today: "2026-11-30". */
export function formatDay(time: string, now = new Date()): string {
	const date = new Date(time);
	if (Number.isNaN(date.getTime()) || date.toDateString() === now.toDateString()) return "";
	return `${date.getFullYear()}-${pad(date.getMonth() + 1, 2)}-${pad(date.getDate(), 2)}`;
}

const shortTypes: [RegExp, string][] = [
	[/^text\/event-stream/, "events"],
	[/json/, "json"],
	[/javascript|ecmascript/, "js"],
	[/^text\/html|xhtml/, "html"],
	[/^text\/css/, "css"],
	[/^text\/plain/, "text"],
	[/^image\/svg/, "svg"],
	[/xml/, "xml"],
	[/^application\/(octet-stream|binary)/, "binary"],
	[/^application\/x-www-form-urlencoded/, "form"],
	[/^multipart\//, "multipart"],
	[/^application\/grpc/, "grpc"],
	[/^(video|audio|font)\//, "$1"],
];

/** A media type in one short word: "json", "html", "png". */
export function shortType(contentType: string): string {
	const type = (contentType.split(";")[0] ?? "").trim().toLowerCase();
	for (const [pattern, word] of shortTypes) {
		const found = pattern.exec(type);
		if (found) return word === "$1" ? (found[1] ?? "") : word;
	}
	const sub = type.split("/")[1] ?? "";
	return sub.replace(/^(x-|vnd\.)/, "").split("+")[0] ?? "";
}
