import { expect, test } from "vitest";
import { charsetOf, isJson, isText } from "./charset";

const ascii = (text: string) => Uint8Array.from(text, (character) => character.charCodeAt(0));
const sjis = Uint8Array.of(0x93, 0xfa, 0x96, 0x7b); // 日本

test.each([
	["a byte order mark before all", "text/plain; charset=iso-8859-1", Uint8Array.of(0xef, 0xbb, 0xbf, 0x41), "utf-8"],
	["a UTF-16 byte order mark", "", Uint8Array.of(0xff, 0xfe, 0x41, 0), "utf-16le"],
	["the media type", "text/html; charset=Shift_JIS", sjis, "shift_jis"],
	["the media type, quoted", 'text/html; charset="windows-1251"', ascii("a"), "windows-1251"],
	["gb2312 as its superset", "text/html; charset=gb2312", ascii("a"), "gbk"],
	["an unknown label is passed over", "text/plain; charset=klingon", ascii("a"), "utf-8"],
	["HTML's meta", "text/html", ascii("<!doctype html><meta charset=shift_jis>"), "shift_jis"],
	["HTML's older meta", "text/html", ascii('<meta http-equiv="Content-Type" content="text/html; charset=gb2312">'), "gbk"],
	["an XML declaration", "text/xml", ascii('<?xml version="1.0" encoding="ISO-8859-1"?>'), "windows-1252"],
	["UTF-8 that nobody labelled", "application/x-javascript", new TextEncoder().encode("'你好'"), "utf-8"],
	["UTF-8 cut in a character", "", new TextEncoder().encode("你好").subarray(0, 5), "utf-8"],
	["neither", "", ascii("caf\xe9 au lait"), "windows-1252"],
])("the charset follows %s", (_, type, bytes, want) => expect(charsetOf(type, bytes)).toBe(want));

test("text and JSON are told by their media type", () => {
	for (const type of ["", "text/css", "application/json", "application/problem+json; charset=utf-8", "image/svg+xml", "application/x-www-form-urlencoded"])
		expect([type, isText(type)]).toEqual([type, true]);
	for (const type of ["image/png", "application/zip", "application/octet-stream", "video/mp4"]) expect([type, isText(type)]).toEqual([type, false]);
	expect(isJson("application/vnd.api+json")).toBe(true);
	expect(isJson("application/x-ndjson")).toBe(false);
});
