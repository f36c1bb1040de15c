import { expect, test } from "vitest";
import { fragmentOf, placeIn } from "./place";

test.each([
	[{ filter: "", session: undefined, open: false }, ""],
	[{ filter: "a b&c=#é", session: undefined, open: false }, "#filter=a+b%26c%3D%23%C3%A9"],
	[{ filter: "/api", session: 12, open: true }, "#filter=%2Fapi&session=12"],
	[{ filter: "", session: 12, open: false }, "#selected=12"],
])("the place %j is kept as %j, and read again", (place, fragment) => {
	expect(fragmentOf(place)).toBe(fragment);
	expect(placeIn(fragment)).toEqual(place);
});

test.each(["#session=-1", "#session=0", "#session=1e9", "#session=9999999999999999", "#session=<b>", "#selected=", "#%", "#filter", "#=&&="])(
	"%j is no place",
	(fragment) => expect(placeIn(fragment)).toEqual({ filter: "", session: undefined, open: false }),
);

test("a filter that no server takes is cut", () => expect(placeIn(`#filter=${"x".repeat(5000)}`).filter).toHaveLength(2000));
