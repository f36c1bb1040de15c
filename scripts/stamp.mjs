// Stamps tell whether something must be made again: a hash over what it is made from, kept after it was made.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { root } from "./run.mjs";

const skipped = new Set(["node_modules", "dist", "results", "testdata", ".git"]);

function* files(path) {
	if (!existsSync(path)) return;
	if (statSync(path).isFile()) {
		yield path;
		return;
	}
	for (const entry of readdirSync(path, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
		if (skipped.has(entry.name)) continue;
		const inner = join(path, entry.name);
		if (entry.isDirectory()) yield* files(inner);
		else if (entry.isFile()) yield inner;
	}
}

/** Hashes the names and contents of all files under the paths, and the further words. */
export function stampOf(paths, { keep = () => true, words = [] } = {}) {
	const hash = createHash("sha256").update(JSON.stringify(words));
	for (const path of paths) {
		for (const file of files(join(root, path))) {
			if (!keep(file)) continue;
			const content = readFileSync(file);
			hash.update(`${file.slice(root.length)}\0${content.length}\0`).update(content);
		}
	}
	return hash.digest("hex");
}

/** Calls make unless the file at path holds the stamp and every output is there; then leaves the stamp. */
export function unlessStamped(path, stamp, outputs, make) {
	const file = join(root, path);
	const known = existsSync(file) ? readFileSync(file, "utf8") : "";
	if (known === stamp && outputs.every((output) => existsSync(join(root, output)))) return;
	make();
	mkdirSync(dirname(file), { recursive: true });
	writeFileSync(file, stamp);
}
