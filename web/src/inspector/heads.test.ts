import { expect, test } from "vitest";
import { readHead, startLine } from "./heads";

test("an HTTP/1 head keeps case, order, repetition and empty values", () => {
	expect(readHead("HTTP/1.1 200 OK\r\ncontent-type: a\r\nX-A:1\r\nx-a:  2 \r\nPragma:\r\n\r\n")).toEqual({
		start: "HTTP/1.1 200 OK",
		fields: [
			["content-type", "a"],
			["X-A", "1"],
			["x-a", "2"],
			["Pragma", ""],
		],
	});
});

test("an HTTP/2 head has pseudo-fields, and no start line", () => {
	expect(readHead(":status: 103\nlink: </a>; rel=preload\n")).toEqual({
		start: "",
		fields: [
			[":status", "103"],
			["link", "</a>; rel=preload"],
		],
	});
	expect(startLine(":method: GET\n")).toBe("");
});

test("what is no field is shown all the same", () => {
	expect(readHead("GET / HTTP/1.1\nnonsense\n folded\n").fields).toEqual([
		["", "nonsense"],
		["", " folded"],
	]);
});
