// Indents JSON without changing it: names, strings and numbers stay as they were sent, character for character (no number is rounded,
// no duplicate name is lost), and only the white space between them is new.

/** The longest text that is indented, in characters. */
export const longestJson = 1 << 20;
/** Indentation can be far longer than what it indents; beyond this many characters it is given up. */
const longestOutput = 16 << 20;
/** Deeper levels are indented like this one. */
const deepest = 64;
/** Characters between two chances for the browser to do something else. */
const slice = 64 << 10;

const indents = Array.from({ length: deepest + 1 }, (_, depth) => `\n${"  ".repeat(depth)}`);

/** Whether a text, or the body of several pages that it is one of, is longer than what is indented. */
export function tooLongToIndent(text: string, pages: number): boolean {
	return pages > 1 || text.length > longestJson;
}

/** Indents a text in slices; undefined where it is no JSON, too long, or the signal said to stop. */
export async function indentJson(text: string, signal?: AbortSignal): Promise<string | undefined> {
	if (text.length > longestJson) return undefined;
	const work = indenting(text);
	for (;;) {
		const step = work.next();
		if (step.done) return step.value;
		await new Promise((resolve) => setTimeout(resolve));
		if (signal?.aborted) return undefined;
	}
}

function* indenting(text: string): Generator<undefined, string | undefined> {
	const closers: string[] = [];
	const newLine = () => indents[Math.min(closers.length, deepest)] ?? "\n";
	// A string, a number or a word, a mark, or white space; whatever else there is, is no JSON.
	const token = /"(?:[^"\\\n]|\\.)*"|[-+.\w]+|[[\]{},:]|[ \t\r\n]+/y;
	let out = "";
	let opened = false;
	let pause = slice;
	while (token.lastIndex < text.length) {
		const found = token.exec(text);
		if (!found || out.length > longestOutput) return undefined;
		const word = found[0];
		const first = word[0] as string;
		if (" \t\r\n".includes(first)) continue;
		if (first === "]" || first === "}") {
			if (closers.pop() !== first) return undefined;
			out += opened ? first : newLine() + first;
			opened = false;
		} else {
			if (opened) out += newLine();
			opened = first === "[" || first === "{";
			if (opened) closers.push(first === "[" ? "]" : "}");
			if (first === ",") out += `,${newLine()}`;
			else out += first === ":" ? ": " : word;
		}
		if (token.lastIndex > pause) {
			pause += slice;
			yield undefined;
		}
	}
	return closers.length === 0 && out !== "" ? out : undefined;
}
