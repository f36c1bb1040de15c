// Measures Millpond beside its peers, or with a million sessions: `npm run bench -- million`. Arguments go to the benchmark: `npm run bench -- --help`.

import { build } from "./build.mjs";
import { become, binary, run, start } from "./run.mjs";

build();
run("go", ["build", "-o", "bin/bench", "./e2e/bench"]);
const args = process.argv.slice(2);
const role = ["million", "syncs"].includes(args[0]) ? [args.shift()] : [];
become(start("bin/bench", [...role, "--millpond", binary, ...args]));
