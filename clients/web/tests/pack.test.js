// Carillon · pack.test.js
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, posix } from "node:path";
import test, { after, before } from "node:test";
import { fileURLToPath } from "node:url";

import { code, imports, pack } from "../pack.mjs";

const folder = dirname(dirname(fileURLToPath(import.meta.url)));
const manifest = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
let target;
let packed;

before(async () => {
  target = await mkdtemp(join(tmpdir(), "carillon-web-"));
  packed = await pack(join(target, "dist"));
});
after(() => rm(target, { recursive: true }));

test("packs the modules of the element, and none of the pages", () => {
  const names = ["carillon.js", "web/inbox.js", "web/inbox-settings.js", "web/menu.js", "web/texts-ar.js"];
  for (const name of [...names, "web/texts-ja.js"]) {
    assert.ok(packed.includes(name), name);
  }
  const others = packed.filter((name) => /admin|index\.js|session|sw\.js/.test(name));
  assert.deepEqual(others, []);
});

test("replaces older modules, and removes those that are gone", async () => {
  await writeFile(join(target, "dist/web/gone.js"), "");
  await writeFile(join(target, "dist/web/dom.js"), "");
  assert.deepEqual(await pack(join(target, "dist")), packed);
  assert.equal((await readdir(join(target, "dist/web"))).length, packed.length - 1);
  assert.notEqual(await readFile(join(target, "dist/web/dom.js"), "utf8"), "");
});

test("every import of a packed module is packed, too", async () => {
  for (const name of packed) {
    const text = await readFile(join(target, "dist", name), "utf8");
    for (const other of imports(text)) {
      assert.match(other, /^\.\.?\//, `${name} imports ${other}`);
      assert.ok(packed.includes(posix.join(posix.dirname(name), other)), `${name} imports ${other}`);
    }
  }
});

test("no packed module names a file in a way that bundlers cannot follow", async () => {
  for (const name of packed) {
    const text = await readFile(join(target, "dist", name), "utf8");
    assert.doesNotMatch(code(text), /new URL\([^,)]+, *import\.meta\.url\)/, name);
  }
});

test("refuses an import whose name is computed, and finds all others", () => {
  assert.throws(() => imports("await import(`./texts-${name}.js`)"), /write the name of the module/);
  const lines = [
    'import "./a.js";', 'import { b } from "./b.js";', 'export { c } from "./c.js";', '// import "./no.js"',
    'await import("./d.js");',
  ];
  assert.deepEqual(imports(lines.join("\n")), ["./a.js", "./b.js", "./c.js", "./d.js"]);
});

test("the files that exports name exist, are packed, and import only packed ones", async () => {
  const entries = Object.values(manifest.exports).flatMap((one) => Object.values(one.types ? one : [one]));
  for (const entry of entries) {
    const text = await readFile(join(folder, entry), "utf8");
    if (entry === "./package.json") continue;
    assert.ok(manifest.files.includes(entry.slice(2)), entry);
    if (!entry.endsWith(".js")) continue;
    for (const other of imports(text).filter((name) => name !== "react")) {
      const name = posix.normalize(other);
      const isPacked = manifest.files.includes(name) || packed.includes(name.replace(/^dist\//, ""));
      assert.ok(isPacked, `${entry} imports ${other}`);
    }
  }
});

const skip = !hasNPM() && "npm is missing";
test("npm packs dist though git ignores it, and neither tests nor scripts", { skip }, async () => {
  await pack();
  const flags = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const report = execFileSync("npm", flags, { cwd: folder, encoding: "utf8" });
  const names = JSON.parse(report)[0].files.map(({ path }) => path);
  for (const name of packed) assert.ok(names.includes(`dist/${name}`), name);
  assert.ok(names.includes("react.js") && names.includes("LICENSE") && names.includes("README.md"), names.join());
  assert.deepEqual(names.filter((name) => /^tests|\.mjs$/.test(name)), []);
});

test("has the version of the other packages, and needs none", async () => {
  const other = JSON.parse(await readFile(join(folder, "../javascript/package.json"), "utf8"));
  assert.equal(manifest.version, other.version);
  const text = await readFile(join(folder, "index.js"), "utf8");
  assert.ok(text.includes(`export const version = "${other.version}";`));
  assert.equal(manifest.dependencies, undefined);
  assert.deepEqual(Object.keys(manifest.peerDependencies), ["react"]);
});

test("the headless client loads without a browser, and has the members of its types", async () => {
  const { Inbox } = await import(join(target, "dist/web/inbox.js"));
  const { CallError } = await import(join(target, "dist/web/inbox-client.js"));
  const { Push } = await import(join(target, "dist/web/inbox-push.js"));
  const inbox = new Inbox("https://notify.example.com", async () => null, "en");
  const types = await readFile(join(folder, "client.d.ts"), "utf8");
  const members = (name) => {
    const body = types.split(new RegExp(`(?:class|interface) ${name}\\b[^{]*\\{\n`))[1].split("\n}")[0];
    const found = [...body.matchAll(/^ {2}(?:readonly )?(\w+)[(:<]/gm)].map((match) => match[1]);
    return found.filter((one) => one !== "constructor");
  };
  assert.ok(members("Inbox").length > 20);
  for (const name of members("Inbox")) assert.ok(name in inbox, `Inbox.${name}`);
  for (const name of members("Client")) assert.ok(name in inbox.client, `Client.${name}`);
  const push = new Push(inbox.client, "/sw.js");
  for (const name of members("Push")) assert.ok(name in push, `Push.${name}`);
  for (const name of members("InboxStore")) assert.ok(name in inbox.store, `InboxStore.${name}`);
  for (const name of members("Words")) assert.ok(name in inbox.words, `Words.${name}`);
  for (const name of members("CallError")) assert.ok(name in new CallError("refused", "no"), `CallError.${name}`);
  const text = await readFile(join(target, "dist/web/inbox.js"), "utf8");
  const fired = [...text.matchAll(/#fire\("(\w+)"/g)].map((match) => match[1]);
  assert.deepEqual([...new Set(fired)].sort(), members("InboxEvents").sort());
});

function hasNPM() {
  try {
    execFileSync("npm", ["--version"]);
    return true;
  } catch {
    return false;
  }
}
