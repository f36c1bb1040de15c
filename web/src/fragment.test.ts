import { expect, test } from "vitest";
import { tokenFrom, tokenIn, withoutToken } from "./fragment";

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

test.each([
	["#token=abc", ""],
	["#token=abc&filter=x+y&token=d", "#filter=x+y"],
	["#session=3&token=", "#session=3"],
	["", ""],
])("of the fragment %j, %j stays in the address", (fragment, want) => expect(withoutToken(fragment)).toBe(want));
