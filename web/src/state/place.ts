import { setFragment } from "../fragment";
import type { Dashboard } from "./dashboard";

/** Where somebody is on the dashboard: what the address keeps, so that a reload and a bookmark lead back. */
export interface Place {
	filter: string;
	/** The id of the session that is selected. */
	session: number | undefined;
	/** Whether the inspector shows it. */
	open: boolean;
}

/** The longest filter that the server takes, in characters. */
export const longestFilter = 2000;

/** The address is written at most this often, in milliseconds: Safari refuses more than 100 changes in 30 seconds. */
const writeEvery = 400;

/** The place in a fragment, "#filter=…&session=…" with the inspector open, "selected" where it is not. Whatever else stands there is nothing. */
export function placeIn(fragment: string): Place {
	const words = new URLSearchParams(fragment.replace(/^#/, ""));
	const opened = idIn(words.get("session"));
	return { filter: (words.get("filter") ?? "").slice(0, longestFilter), session: opened ?? idIn(words.get("selected")), open: opened !== undefined };
}

function idIn(text: string | null): number | undefined {
	return text !== null && /^[1-9]\d{0,14}$/.test(text) ? Number(text) : undefined;
}

/** The fragment of a place; empty where there is nothing to tell. */
export function fragmentOf({ filter, session, open }: Place): string {
	const words = new URLSearchParams();
	if (filter !== "") words.set("filter", filter);
	if (session !== undefined) words.set(open ? "session" : "selected", String(session));
	const text = words.toString();
	return text && `#${text}`;
}

/** Keeps the dashboard's place in the address of the page, without entries in the history. */
export function keepPlace(dashboard: Dashboard): void {
	let timer: ReturnType<typeof setTimeout> | undefined;
	const write = () => {
		clearTimeout(timer);
		timer = undefined;
		setFragment(fragmentOf(dashboard.place()));
	};
	const later = () => {
		timer ??= setTimeout(write, writeEvery);
	};
	for (const store of [dashboard.list.state, dashboard.list.filter, dashboard.inspecting]) store.subscribe(later);
	window.addEventListener("pagehide", () => timer !== undefined && write());
}
