// Kills Millpond, cuts its disk's power and makes the disk fail, and compares what is kept with what was acknowledged.
// Arguments go to the program that does it: `npm run torture -- --help`.

import { build } from "./build.mjs";
import { become, binary, run, start } from "./run.mjs";

build();
run("go", ["build", "-o", "bin/torture", "./e2e/torture"]);
become(start("bin/torture", ["--millpond", binary, ...process.argv.slice(2)]));
