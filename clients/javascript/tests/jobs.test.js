// Carillon · jobs.test.js
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import test from "node:test";

import { fields, InvalidJobError, version } from "carillon";

test("has the version of the package", async () => {
  const manifest = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
  assert.equal(version, manifest.version);
});

test("ships every module", async () => {
  const folder = new URL("../", import.meta.url);
  const { files } = JSON.parse(await readFile(new URL("package.json", folder), "utf8"));
  const modules = (await readdir(folder)).filter((name) => /\.(js|d\.ts)$/.test(name));
  assert.deepEqual([...files].sort(), modules.sort());
});

test("fields are strings as they are, and other values as JSON", () => {
  const job = {
    users: ["ada", "ben"], except: ["cleo"], type: "payment_received", id: "payment:1", title: '40 < 50 & "more"',
    data: { text: "<b>" }, badge: 0, org: null, body: undefined, expires_at: new Date("2026-11-20T10:00:00Z"),
  };
  assert.deepEqual(fields(job), {
    users: '["ada","ben"]', except: '["cleo"]', type: "payment_received", id: "payment:1", title: '40 < 50 & "more"',
    data: '{"text":"<b>"}', badge: "0", expires_at: "2026-11-20T10:00:00.000Z",
  });
  assert.deepEqual(fields({ all: true, event: "ping", args: [1] }), { all: "true", event: "ping", args: "[1]" });
});

test("every fault of a job is named", () => {
  const audience = "user: give exactly one of user, users, topic, all";
  const id = "id: is missing; derive it from the event that the job reports: payment:9317";
  const loop = {};
  loop.loop = loop;
  for (const [job, message] of [
    [{}, `${audience}; type: is missing; ${id}`],
    [{ user: "ada", all: true, type: "t", id: "1" }, audience],
    [{ user: "ada", type: "t" }, id],
    [{ user: "ada", type: "t", event: "e" }, "type: cannot be combined with event"],
    [
      { users: Array(1_001).fill("ada"), type: "t", id: "1" },
      "users: must be at most 1000 users; send to a topic, or several jobs",
    ],
    [{ user: "ada", type: "t", id: "1", badge: 1n }, /^badge: is not JSON: .*BigInt/],
    [{ user: "ada", type: "t", id: "1", data: loop }, /^data: is not JSON: .*circular/],
  ]) {
    assert.throws(() => fields(job), { name: "InvalidJobError", message });
    assert.throws(() => fields(job), InvalidJobError);
  }
});

test("times and numbers that JSON would turn into null are refused", () => {
  const none = new Date("tomorrow");
  for (const [other, message] of [
    [{ deliver_at: none }, "deliver_at: is not a time"],
    [{ expires_at: { toJSON: () => null } }, "expires_at: is not a time"],
    [{ data: { at: none } }, "data: is not a time"],
    [{ badge: NaN }, "badge: holds NaN; numbers must be finite"],
    [{ vars: { amounts: [-Infinity] } }, "vars: holds -Infinity; numbers must be finite"],
  ]) {
    assert.throws(() => fields({ user: "ada", type: "t", id: "1", ...other }), { name: "InvalidJobError", message });
  }
  const data = { at: new Date(0), none: null, list: [undefined, null] };
  const { data: text } = fields({ user: "ada", type: "t", id: "1", data });
  assert.equal(text, '{"at":"1970-01-01T00:00:00.000Z","none":null,"list":[null,null]}');
});

test("texts that Carillon cannot store are refused", () => {
  const zero = "holds the character U+0000";
  const half = "holds half of a surrogate pair";
  for (const [other, message] of [
    [{ title: "a\0" }, `title: ${zero}`],
    [{ title: "🎉".slice(0, 1) }, `title: ${half}`],
    [{ except: ["ben", "\udf89"] }, `except: ${half}`],
    [{ data: { list: [{ text: "\0" }] } }, `data: ${zero}`],
    [{ vars: { "\ud83c": 1 } }, `vars: ${half}`],
    [{ platform: { fcm: { "a\0": 1 } } }, `platform: ${zero}`],
  ]) {
    assert.throws(() => fields({ user: "ada", type: "t", id: "1", ...other }), { name: "InvalidJobError", message });
  }
  const job = { user: "ada", type: "t", id: "1", title: "🎉 \\u0000", data: { a: "\\ud83c" } };
  assert.deepEqual(fields(job), { ...job, data: '{"a":"\\\\ud83c"}' });
});

test("an empty audience or id is none", () => {
  const rest = { type: "t", id: "1" };
  const audience = "user: give exactly one of user, users, topic, all";
  for (const none of [{ all: false }, { user: "" }, { users: [] }, { topic: "" }]) {
    assert.throws(() => fields({ ...rest, ...none }), { message: audience });
    const given = none.topic === "" ? { user: "ada" } : { topic: "news" };
    assert.deepEqual(fields({ ...rest, ...given, ...none }), { ...rest, ...given });
  }
  assert.deepEqual(fields({ all: true, except: [], ...rest }), { all: "true", ...rest });
  assert.throws(() => fields({ user: "ada", type: "t", id: "" }), { message: /^id: is missing/ });
  assert.throws(() => fields({ user: "ada", type: "", id: "1" }), { message: "type: is missing" });
  assert.deepEqual(fields({ user: "ada", event: "e", type: "", id: "" }), { user: "ada", event: "e" });
  assert.deepEqual(fields({ user: "ada", ...rest, title: "" }), { user: "ada", ...rest, title: "" });
});
