import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { bin, root } from "./processes.ts";

/** Builds the origin, and makes sure that the program is there. */
export default function build() {
	if (!existsSync(bin("millpond"))) throw new Error("bin/millpond is not there: npm run build");
	execFileSync("go", ["build", "-o", bin("origin"), "./e2e/origin"], { cwd: root, stdio: "inherit" });
}
