// Carillon · types.test.js
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

const folder = dirname(dirname(fileURLToPath(import.meta.url)));
const resources = join(folder, "../../Sources/Gateway/HTTP/Web/Resources");
const read = (name) => readFile(join(folder, name), "utf8");

const element = await readFile(join(resources, "carillon.js"), "utf8");
const types = await read("index.d.ts");

/** The body of a declaration, up to the line with its closing brace. */
function body(text, declaration) {
  const rest = text.split(`${declaration} {\n`)[1];
  assert.ok(rest, declaration);
  return rest.split("\n}")[0];
}

const names = (text, pattern) => [...new Set([...text.matchAll(pattern)].map((match) => match[1]))].sort();

/** The names in a table of docs/web.md. */
async function documented(heading) {
  const page = await readFile(join(folder, "../../docs/web.md"), "utf8");
  const table = page.split(`| ${heading} |`)[1].split("\n\n")[0];
  return names(table, /^\| `([^`]+)`/gm);
}

test("types have every attribute that the element observes or the docs name", async () => {
  const observed = /observedAttributes = (\[.*?\])/.exec(element)[1];
  const typed = names(body(types, "export interface CarillonAttributes"), /^ {2}(\w+)\?:/gm);
  for (const name of JSON.parse(observed)) assert.ok(typed.includes(name), name);
  assert.deepEqual(typed, await documented("attribute"));
  const list = /^const attributes = (\[.*\]);$/m.exec(await read("react.js"))[1];
  assert.deepEqual(JSON.parse(list).sort(), typed);
});

test("types and component have every event that the element dispatches", async () => {
  const fired = names(element, /#fire\("([\w-]+)"/g);
  assert.equal(fired.length, 6);
  assert.deepEqual(names(body(types, "export interface CarillonEvents"), /^ {2}"([\w-]+)":/gm), fired);
  assert.deepEqual(await documented("event"), fired);
  const component = await read("react.js");
  assert.deepEqual(names(body(component, "const events ="), /: "([\w-]+)"/g), fired);
  const props = names(component, /\b(on[A-Z]\w+): "carillon/g);
  const typed = names(await read("react.d.ts"), /^ {2}(on\w+)\?: Handler<"carillon/gm);
  assert.deepEqual(typed, props);
});

test("types have every public property of the element", () => {
  const members = names(element.split("\n/** Returns what gives tokens")[0], /^ {2}(?:get |set |async )?(\w+)\([^)]*\) \{/gm);
  const internal = ["connectedCallback", "disconnectedCallback", "attributeChangedCallback"];
  const text = body(types, "export class CarillonInbox extends HTMLElement");
  const typed = names(text, /^ {2}(?:get |set )?(\w+)[(:]/gm).sort();
  assert.deepEqual(typed, members.filter((name) => !internal.includes(name)));
});

test("types have every member of the inbox that is not only for the element", async () => {
  const inbox = body(await readFile(join(resources, "inbox.js"), "utf8"), "export class Inbox extends EventTarget");
  const members = names(inbox, /^ {2}(?:async |get )?([a-z]\w*)(?: =|[(;])/gm);
  const internal = ["announced", "isLoadingArchive", "mute", "prefer", "speaker", "updateCounts"];
  for (const name of internal) assert.ok(members.includes(name), name);
  const text = body(await read("client.d.ts"), "export class Inbox extends EventTarget");
  const typed = names(text, /^ {2}(?:readonly )?(\w+)\??[(:]/gm);
  const inherited = ["addEventListener", "removeEventListener"];
  assert.deepEqual(typed.filter((name) => !inherited.includes(name)), members.filter((name) => !internal.includes(name)));
});

test("types have the fields of a notification that the gateway sends", async () => {
  const shape = await readFile(join(folder, "../../Sources/Shared/Core/Shapes/CanonicalShape.swift"), "utf8");
  const list = shape.split("members:")[1].split("\n    ]")[0];
  const fields = [...names(list, /\("(\w+)", \./g), "again", "silent"].sort();
  assert.ok(fields.length > 15);
  assert.deepEqual(names(body(types, "export interface Notification"), /^ {2}readonly (\w+)\??:/gm), fields);
});

test("types have every text, and say which are functions and groups", async () => {
  const { en } = await import(join(resources, "texts.js"));
  const text = body(await read("texts.d.ts"), "export interface Texts");
  const typed = [...text.matchAll(/^ {2}readonly (\w+): (.*);$/gm)].map(([, name, type]) => [name, type]);
  assert.deepEqual(typed.map(([name]) => name), Object.keys(en));
  for (const [name, type] of typed) {
    const kind = type.startsWith("(") ? "function" : type.startsWith("Readonly") ? "object" : "string";
    assert.equal(typeof en[name], kind, name);
    if (kind === "object") assert.deepEqual(names(type, /"(\w+)"/g), Object.keys(en[name]).sort(), name);
    if (kind === "function") assert.ok(type.split("=>")[0].split(",").length >= en[name].length, name);
  }
});
