import { expect, test } from "vitest";
import { nextTheme, type Theme } from "./theme";

test.each([
	[false, ["system", "dark", "light", "system"]],
	[true, ["system", "light", "dark", "system"]],
])("where the system is dark: %s, the first step is to the other theme", (dark, round) => {
	for (const [at, now] of round.slice(0, 3).entries()) expect(nextTheme(now as Theme, dark)).toBe(round[at + 1]);
});
