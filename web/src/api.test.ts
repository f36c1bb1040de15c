/// <reference types="node" />
import { readFileSync } from "node:fs";
import openapi, { astToString, COMMENT_HEADER } from "openapi-typescript";
import { expect, test } from "vitest";

test("the types are those of the server's OpenAPI document; npm run api makes them anew", async () => {
	const made = COMMENT_HEADER + astToString(await openapi(new URL("../openapi.json", import.meta.url)));
	expect(readFileSync(new URL("./api.d.ts", import.meta.url), "utf8")).toBe(made);
});
