// Carillon · jobs.test.js
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";

import { fields, InvalidJobError, version } from "carillon";

test("has the version of the package", async () => {
  const manifest = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
  assert.equal(version, manifest.version);
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
    [{ user: "ada", type: "t", id: "1", badge: 1n }, /^job: is not JSON: .*BigInt/],
    [{ user: "ada", type: "t", id: "1", data: loop }, /^job: is not JSON: .*circular/],
  ]) {
    assert.throws(() => fields(job), { name: "InvalidJobError", message });
    assert.throws(() => fields(job), InvalidJobError);
  }
});
