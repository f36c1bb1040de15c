import { Store } from "./store";

/** Light, dark, or as the system says. */
export type Theme = "system" | "light" | "dark";

const key = "millpond.theme";

function saved(): Theme {
	try {
		const word = localStorage.getItem(key);
		return word === "light" || word === "dark" ? word : "system";
	} catch {
		return "system"; // a browser that refuses storage keeps the choice for this visit only
	}
}

export const theme = new Store<Theme>("system");

function apply(): void {
	if (theme.get() === "system") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = theme.get();
}

/** Puts the saved theme on the page, and keeps what is chosen. */
export function startTheme(): void {
	theme.set(saved());
	apply();
	theme.subscribe(() => {
		apply();
		try {
			localStorage.setItem(key, theme.get());
		} catch {
			// see saved
		}
	});
}

export function systemIsDark(): boolean {
	return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The theme after this one, going round. The first step away from the system's is to the other one, so that it is seen. */
export function nextTheme(now: Theme, systemDark: boolean): Theme {
	const other = systemDark ? "light" : "dark";
	if (now === "system") return other;
	return now !== other ? "system" : systemDark ? "dark" : "light";
}
