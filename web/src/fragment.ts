/** The token in a fragment, "#token=…"; empty where there is none. */
export function tokenIn(fragment: string): string {
	return new URLSearchParams(fragment.replace(/^#/, "")).get("token") ?? "";
}

/** A fragment without its token. */
export function withoutToken(fragment: string): string {
	const words = new URLSearchParams(fragment.replace(/^#/, ""));
	words.delete("token");
	const rest = words.toString();
	return rest && `#${rest}`;
}

/** Puts a fragment, with its "#" or empty, into the address, in the place of the one that is there. */
export function setFragment(fragment: string): void {
	if (location.hash !== fragment) history.replaceState(null, "", location.pathname + location.search + fragment);
}

/** Takes the token out of the address bar and the history, so that it is neither bookmarked nor seen over a shoulder. */
export function takeToken(): string {
	const token = tokenIn(location.hash);
	if (token !== "") setFragment(withoutToken(location.hash));
	return token;
}

/** Takes the token out of what was pasted: the token itself, or the whole line that Millpond printed. */
export function tokenFrom(text: string): string {
	const found = /#token=([^\s#&]+)/.exec(text);
	return found?.[1] ?? text.trim();
}
