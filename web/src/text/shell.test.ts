import { expect, test } from "vitest";
import { shellWord } from "./shell";

test.each([
	["plain", "/home/me/millpond-data/ca/cert.pem", "/home/me/millpond-data/ca/cert.pem"],
	["a space", "/home/me/my data/ca/cert.pem", "'/home/me/my data/ca/cert.pem'"],
	["a quote", "/home/o'brien/$x/cert.pem", "'/home/o'\\''brien/$x/cert.pem'"],
	["nothing", "", "''"],
	["Windows", "C:\\Users\\me\\ca\\cert.pem", "C:\\Users\\me\\ca\\cert.pem"],
	["Windows with a space", "C:\\Users\\Jo Doe\\cert.pem", '"C:\\Users\\Jo Doe\\cert.pem"'],
])("%s", (_, path, want) => {
	expect(shellWord(path)).toBe(want);
});
