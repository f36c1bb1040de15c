// Measures Millpond beside its peers. Arguments go to the benchmark: `npm run bench -- --help`.

import { build } from "./build.mjs";
import { become, binary, run, start } from "./run.mjs";

build();
run("go", ["build", "-o", "bin/bench", "./e2e/bench"]);
become(start("bin/bench", ["--millpond", binary, ...process.argv.slice(2)]));
