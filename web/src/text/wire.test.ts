import { expect, test } from "vitest";
import { readable } from "./wire";

const wire = (text: string) => String.fromCharCode(...new TextEncoder().encode(text));

test.each([
	["plain ASCII", "/a?b=%E6%B5%8B", "/a?b=%E6%B5%8B"],
	["raw UTF-8", wire("/测试/naïve"), "/测试/naïve"],
	["latin-1", "caf\u00e9 Non-Autoris\u00e9", "café Non-Autorisé"],
	["text that is Unicode already", "é 测试", "é 测试"],
	["control characters", "a\u0001b\u007fc\td", "a␁b␡c\td"],
	["characters that turn text around, hidden in UTF-8", wire("a\u202egnp.exe"), "a�gnp.exe"],
])("%s", (_, text, want) => expect(readable(text)).toBe(want));
