// Makes the API's description from the Go types, and the app's types from that.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { install } from "./install.mjs";
import { fail, read, root, run } from "./run.mjs";

install();
const description = read("go", ["run", ".", "openapi"]);
if (description === null) fail("go run . openapi: it failed");
writeFileSync(join(root, "web/openapi.json"), description);
run("npm", ["run", "--silent", "api", "--workspace", "web"]);
