// How fast a body grows, and how long it will take.

/** A body's size, in bytes, at a moment in milliseconds. */
export interface Sample {
	at: number;
	size: number;
}

/** The speed is taken over this many milliseconds. */
const span = 4_000;

/** Adds a sample, and drops those that are too old to matter. At most some 40 are kept, because changes come at most 10 times a second. */
export function sampled(samples: Sample[], at: number, size: number): Sample[] {
	const recent = samples.filter((sample) => at - sample.at <= span);
	return [...recent.slice(-63), { at, size }];
}

/** Bytes a second over the samples; undefined while there are too few to tell. */
export function speedOf(samples: Sample[], now: number): number | undefined {
	const first = samples[0];
	const last = samples.at(-1);
	if (!first || !last || last.at - first.at < 500) return undefined;
	return ((last.size - first.size) * 1000) / (Math.max(now, last.at) - first.at);
}

/** Milliseconds until `size` grows to `total`; undefined where that cannot be told. */
export function timeLeft(size: number, total: number | undefined, speed: number | undefined): number | undefined {
	if (total === undefined || !speed || speed <= 0 || total <= size) return undefined;
	return ((total - size) * 1000) / speed;
}

/** The Content-Length among fields, where there is exactly one meaning. */
export function contentLength(fields: readonly (readonly [string, string])[]): number | undefined {
	const values = new Set(fields.filter(([name]) => name.toLowerCase() === "content-length").map(([, value]) => value.trim()));
	const [value] = values;
	return values.size === 1 && value !== undefined && /^\d{1,15}$/.test(value) ? Number(value) : undefined;
}
