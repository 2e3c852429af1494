// Carillon · producer.test.js
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import test from "node:test";

import { LaneFullError, part, Producer } from "carillon";

const tags = "agbr mws akgg arf agsp eoi akve acd gxm aedt rvp aahy gio qn ceb aipc";

const payment = (id, other = {}) => ({ id, user: "ada", type: "payment_received", ...other });

/** Records what a client of node-redis or ioredis appends. */
function client(kind, { tags = null, length = 0, failing = null } = {}) {
  const appended = [];
  const append = async (stream, id, fields) => {
    assert.equal(id, "*");
    if (fields.id === failing) throw new Error("connection lost");
    appended.push([stream, fields]);
    return `1-${appended.length}`;
  };
  const names = (words) => words.filter((_, index) => index % 2 === 0);
  const pairs = (words) => Object.fromEntries(names(words).map((name, index) => [name, words[2 * index + 1]]));
  const commands = {
    "node-redis": { xAdd: append, xLen: async () => length },
    ioredis: { xadd: (stream, id, ...words) => append(stream, id, pairs(words)), xlen: async () => length },
  };
  const get = async (key) => (key === "carillon:tags" ? tags : null);
  return { appended, get, ...commands[kind] };
}

for (const kind of ["node-redis", "ioredis"]) {
  test(`a job goes to the stream of its lane with ${kind}`, async () => {
    const redis = client(kind);
    const producer = new Producer(redis);
    assert.equal(await producer.send(payment("1", { data: { a: 1 } })), "1-1");
    for (const lane of ["critical", "normal", "bulk"]) await producer.send(payment("2", { lane }));
    assert.deepEqual(redis.appended[0], [
      "carillon:jobs", { id: "1", user: "ada", type: "payment_received", data: '{"a":1}' },
    ]);
    const streams = redis.appended.slice(1).map(([stream]) => stream);
    assert.deepEqual(streams, ["carillon:jobs:critical", "carillon:jobs", "carillon:jobs:bulk"]);
  });

  test(`jobs are spread over the parts of a cluster with ${kind}`, async () => {
    const redis = client(kind, { tags });
    const producer = new Producer(redis, { spread: true });
    await producer.send(payment("1", { user: "foobar" }));
    await producer.sendMany([{ id: "foobar", all: true, type: "t", lane: "bulk" }]);
    const streams = redis.appended.map(([stream]) => stream);
    assert.deepEqual(streams, ["carillon:{gxm}:jobs", "carillon:{gxm}:jobs:bulk"]);
  });

  test(`no more batches go to a lane that is full with ${kind}`, async () => {
    const jobs = Array.from({ length: 1_200 }, (_, index) => payment(String(index)));
    const redis = client(kind, { length: 10 });
    await assert.rejects(new Producer(redis, { mostWaiting: 10 }).sendMany(jobs), (error) => {
      assert(error instanceof LaneFullError);
      assert.deepEqual([error.stream, error.length, error.sent], ["carillon:jobs", 10, 500]);
      return true;
    });
    assert.equal(redis.appended.length, 500);
    assert.equal(await new Producer(client(kind, { length: 9 }), { mostWaiting: 10 }).sendMany(jobs), 1_200);
  });

  test(`a full lane stops the next call with ${kind}`, async () => {
    const redis = client(kind, { length: 10 });
    const producer = new Producer(redis, { mostWaiting: 10 });
    const bulk = [payment("1", { lane: "bulk" })];
    assert.equal(await producer.sendMany(bulk), 1);
    await assert.rejects(producer.sendMany(bulk), { name: "LaneFullError", stream: "carillon:jobs:bulk", sent: 0 });
    assert.equal(await producer.sendMany([payment("2")]), 1);
    Object.assign(redis, kind === "ioredis" ? { xlen: async () => 9 } : { xLen: async () => 9 });
    assert.equal(await producer.sendMany(bulk), 1);
  });
}

test("one Redis has no parts", async () => {
  for (const none of [null, ""]) {
    const redis = client("node-redis", { tags: none });
    await new Producer(redis, { spread: true }).send(payment("1"));
    assert.equal(redis.appended[0][0], "carillon:jobs");
  }
});

test("nothing is appended if one job is invalid", async () => {
  const redis = client("node-redis");
  await assert.rejects(new Producer(redis).sendMany([payment("1"), payment()]), { message: /^\[1\]\.id: is missing/ });
  assert.equal(redis.appended.length, 0);
});

test("of several jobs, the one whose text cannot be stored is named", async () => {
  const jobs = [payment("1"), payment("2", { data: { a: ["\0"] } })];
  const message = "[1].data: holds the character U+0000";
  await assert.rejects(new Producer(client("node-redis")).sendMany(jobs), { message });
});

test("errors of Redis pass through when the batch is over", async () => {
  const redis = client("node-redis", { failing: "2" });
  const jobs = ["1", "2", "3"].map((id) => payment(id));
  await assert.rejects(new Producer(redis).sendMany(jobs), { message: "connection lost" });
  assert.deepEqual(redis.appended.map(([, { id }]) => id), ["1", "3"]);
});

test("a user's part follows from the hash of the id", () => {
  // FNV-1a of "a" and "foobar" are test vectors of the hash: 0xe40c292c and 0xbf9cf968.
  assert.deepEqual(["a", "foobar", "zoë"].map((user) => part(user, tags.split(" "))), [
    "carillon:{gio}", "carillon:{gxm}", "carillon:{gio}",
  ]);
  assert.equal(part("a", []), "carillon");
});
