import { expect, test } from "vitest";
import { tokenFrom, tokenIn } from "./fragment";

test.each([
	["#token=abc-_9", "abc-_9"],
	["#other=1&token=abc", "abc"],
	["#token=a%20b", "a b"],
	["#token=", ""],
	["#", ""],
	["", ""],
])("the token in the fragment %j is %j", (fragment, want) => expect(tokenIn(fragment)).toBe(want));

test.each([
	["  abc \n", "abc"],
	["http://127.0.0.1:8081/#token=abc", "abc"],
	["dashboard http://127.0.0.1:8081/#token=abc\nproxy 127.0.0.1:8080", "abc"],
])("the token pasted as %j is %j", (text, want) => expect(tokenFrom(text)).toBe(want));
