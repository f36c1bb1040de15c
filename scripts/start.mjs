// Installs and builds what changed, then serves. Further arguments go to the program: `npm start -- --proxy 0.0.0.0:8080`.

import { build } from "./build.mjs";
import { become, binary, start } from "./run.mjs";

build();
become(start(binary, process.argv.slice(2)));
