// Runs every test that docs/wire.md names, and writes its tables, with what the run said of each, when all of them pass.
// `npm run wire -- --no-run` writes them without results.

import { build } from "./build.mjs";
import { clients } from "./chromium.mjs";
import { binary, root, run } from "./run.mjs";
import { join } from "node:path";

build();
run("go", ["test", "./e2e/wire", "-run=^TestPage$", "-count=1", "-timeout=30m", process.argv.includes("--no-run") ? "-no-run" : "-update"], {
	MILLPOND_BINARY: join(root, binary),
	MILLPOND_GIB: "all",
	CHROMIUM: clients(),
});
