import { expect, test } from "vitest";
import { hashWord } from "./words";

test("the hash of a cut body does not read as the body's", () => {
	expect(hashWord({ complete: true })).toBe("sha256");
	expect(hashWord({ complete: false })).toBe("sha256 of the bytes kept");
});
