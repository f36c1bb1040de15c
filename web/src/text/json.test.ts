import { expect, test } from "vitest";
import { indentJson, longestJson, tooLongToIndent } from "./json";

test("indents as people do, and keeps empty ones on a line", async () => {
	expect(await indentJson('{"a":[1,{"b":null}],"c":{},"d":[ ]}')).toBe(
		'{\n  "a": [\n    1,\n    {\n      "b": null\n    }\n  ],\n  "c": {},\n  "d": []\n}',
	);
});

test("says what JSON.stringify says, for JSON that it can say", async () => {
	const value = { list: [1, -2.5, "x", true, [], {}, [[["deep"]]]], 'name "quoted" \\': "a\\b\n{[,:]}", 你好: "世界" };
	expect(await indentJson(JSON.stringify(value))).toBe(JSON.stringify(value, null, 2));
	expect(await indentJson(JSON.stringify(value, null, 7))).toBe(JSON.stringify(value, null, 2));
});

test("changes no number, and loses no duplicate name", async () => {
	const sent = '{"n":123456789012345678901234567890,"n":1e400,"n":-0.10}';
	expect((await indentJson(sent))?.replaceAll(/\s/g, "")).toBe(sent);
});

test.each(["", "   ", "{", "[1,2", "]", '{"a":1]', '{"a', "<html>", '{"a":\u0001}', "{'a':1}"])("%j is no JSON", async (text) =>
	expect(await indentJson(text)).toBeUndefined(),
);

test("a million brackets are given up, not turned into gigabytes", async () => {
	expect(await indentJson("[".repeat(longestJson / 2) + "]".repeat(longestJson / 2))).toBeUndefined();
	expect(await indentJson(" ".repeat(longestJson + 1))).toBeUndefined();
});

test("stops when it is told to", async () => {
	const control = new AbortController();
	const work = indentJson(`[${"1,".repeat(200_000)}1]`, control.signal);
	control.abort();
	expect(await work).toBeUndefined();
});

test("what is too long to be indented is known as such", () => {
	expect(tooLongToIndent("x".repeat(1 << 20), 1)).toBe(false);
	expect(tooLongToIndent("x".repeat((1 << 20) + 1), 1)).toBe(true);
	expect(tooLongToIndent("{}", 2)).toBe(true);
});
