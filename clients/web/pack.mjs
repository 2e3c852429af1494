// Carillon · pack.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Copies the modules of the element to `dist`, with the same paths as on the gateway. npm runs this
// before it packs.

import { realpathSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";

const folder = dirname(fileURLToPath(import.meta.url));
const sources = join(folder, "../../Sources/Gateway/HTTP/Web/Resources");

/** Returns a script without its comments. */
export function code(text) { return text.replace(/^\s*(?:\/\/|\/?\*).*$/gm, ""); }

/** Returns the modules that a script imports, including dynamic imports. */
export function imports(text) {
  const computed = code(text).match(/\bimport\(\s*[^"\s].*/);
  if (computed) throw new Error(`cannot follow ${computed[0]}: write the name of the module`);
  return [...code(text).matchAll(/\b(?:from|import)\b\s*\(?\s*"([^"]+)"/g)].map((match) => match[1]);
}

/**
 * Copies `carillon.js` and all that it imports. Returns their paths in the folder, sorted.
 *
 * The gateway serves the folder `Resources` as `/web/`, except for the entry.
 */
export async function pack(target = join(folder, "dist")) {
  const found = new Set(["carillon.js"]);
  for (const path of found) {
    const text = await readFile(join(sources, basename(path)), "utf8");
    await write(join(target, path), text);
    for (const name of imports(text)) found.add(posix.join(posix.dirname(path), name));
  }
  const stale = (await readdir(target, { recursive: true })).filter((path) => path.endsWith(".js") && !found.has(path));
  for (const path of stale) await rm(join(target, path));
  return [...found].sort();
}

/** Writes a file atomically, if it changes, because others may read the folder meanwhile. */
async function write(path, text) {
  if (await readFile(path, "utf8").catch(() => null) === text) return;
  const draft = `${path}.${process.pid}.new`;
  await mkdir(dirname(path), { recursive: true });
  await writeFile(draft, text);
  await rename(draft, path);
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) await pack();
