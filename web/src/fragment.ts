/** The token in a fragment, "#token=…"; empty where there is none. */
export function tokenIn(fragment: string): string {
	return new URLSearchParams(fragment.replace(/^#/, "")).get("token") ?? "";
}

/** Takes the token out of the address bar and the history, so that it is neither bookmarked nor seen over a shoulder. */
export function takeToken(): string {
	const token = tokenIn(location.hash);
	if (token !== "") history.replaceState(null, "", location.pathname + location.search);
	return token;
}

/** Takes the token out of what was pasted: the token itself, or the whole line that Millpond printed. */
export function tokenFrom(text: string): string {
	const found = /#token=([^\s#&]+)/.exec(text);
	return found?.[1] ?? text.trim();
}
