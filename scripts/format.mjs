// Formats the Go files, and mends in scripts and the app what the linter can mend.

import { install } from "./install.mjs";
import { run } from "./run.mjs";

install();
run("go", ["tool", "-modfile=scripts/tools.mod", "gofumpt", "-w", "."]);
run("npx", ["oxlint", "--fix"]);
