import { describe, expect, test } from "vitest";
import { asciiOf, formatOffset, hexOf, offsetDigits, parseOffset } from "./hex";

const bytes = (text: string) => Uint8Array.from(text, (character) => character.charCodeAt(0));

describe("a row", () => {
	test("is hex with a gap in the middle, and ASCII with dots", () => {
		const row = bytes("PK\x03\x04\x14\x00\x00\x00\x08\x00M|oY\xa1~");
		expect(hexOf(row, 16)).toBe("50 4b 03 04 14 00 00 00  08 00 4d 7c 6f 59 a1 7e");
		expect(asciiOf(row)).toBe("PK········M|oY·~");
	});
	test("at the end of the body is padded", () => {
		expect(hexOf(bytes("ab"), 8)).toBe(`61 62${" ".repeat(18)}`);
		expect(hexOf(bytes(""), 16)).toHaveLength(48);
	});
	test("never shows what DEL or high bytes would be", () => {
		expect(asciiOf(bytes("\x1f\x20\x7e\x7f\x80\xff"))).toBe("· ~···");
	});
});

test("offsets have as many digits as the body's last byte needs", () => {
	expect(offsetDigits(0)).toBe(8);
	expect(offsetDigits(2 ** 32)).toBe(8);
	expect(offsetDigits(2 ** 32 + 1)).toBe(10);
	expect(formatOffset(0xfa000010, 10)).toBe("00 FA 00 00 10");
	expect(formatOffset(13_600_000_000, 10)).toBe("03 2A 9F 88 00");
});

test.each([
	["0", 0],
	["4,194,304", 4_194_304],
	["4_194_304", 4_194_304],
	["0xFA000000", 0xfa000000],
	["1.5 GB", 1_500_000_000],
	["4 MiB", 4 << 20],
	["50%", 6_799_999_999],
	["100%", 13_599_999_999],
	["end", 13_599_999_999],
	[" 13599999999 ", 13_599_999_999],
	["13600000000", undefined],
	["101%", undefined],
	["-1", undefined],
	["0x", undefined],
	["12 parsecs", undefined],
	["", undefined],
])("go to %j of a 13.6 GB body is %s", (text, want) => expect(parseOffset(text, 13_600_000_000)).toBe(want));

test("an empty body has one place, its start", () => {
	expect(parseOffset("0", 0)).toBe(0);
	expect(parseOffset("1", 0)).toBe(undefined);
});
