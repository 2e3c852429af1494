// Carillon · http.test.js
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import test from "node:test";

import { HTTPProducer, InvalidJobError, RefusedError, UnavailableError } from "carillon";

const payment = (id) => ({ id, user: "ada", type: "payment_received" });
const accepted = (index) => ({ id: String(index), lane: "critical", entry: `1-${index}` });
const accept = (count) => [202, { jobs: Array.from({ length: count }, (_, index) => accepted(index)) }];
const busy = (after) => [503, { detail: "Redis is out of reach" }, after ? { "retry-after": after } : {}];
/** Closes the connection without an answer. */
const reset = null;
/** Never answers. */
const silence = undefined;

/** Starts a gateway that gives its answers in order and repeats the last. */
async function start(context, ...answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const answer = answers[Math.min(requests.length, answers.length - 1)];
    requests.push({ ...request, headers: request.headers, jobs: JSON.parse(Buffer.concat(chunks)) });
    if (answer === reset) return request.socket.resetAndDestroy();
    if (answer === silence) return;
    const [status, body, headers] = answer;
    response.writeHead(status, headers).end(typeof body === "string" ? body : JSON.stringify(body));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => {
    server.closeAllConnections?.();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}/`;
  return { requests, url, producer: new HTTPProducer(url, async () => " secret\n", { longestWait: 2_000 }) };
}

test("a job is accepted", async (context) => {
  const { requests, producer } = await start(context, accept(1));
  assert.deepEqual(await producer.send(payment("payment:1")), accepted(0));
  assert.deepEqual(requests[0].jobs, [payment("payment:1")]);
  assert.equal(requests[0].headers.authorization, "Bearer secret");
});

test("a job goes without its empty audiences and nulls", async (context) => {
  const { requests, producer } = await start(context, accept(1));
  await producer.send({ ...payment("payment:1"), all: false, users: [], topic: "", org: null, badge: 0 });
  assert.deepEqual(requests[0].jobs, [{ ...payment("payment:1"), badge: 0 }]);
});

test("a job is sent again until it is accepted", async (context) => {
  const { requests, producer } = await start(context, busy("1"), reset, [429, {}], [502, "<html>"], accept(1));
  const began = performance.now();
  assert.deepEqual(await producer.send(payment("payment:1")), accepted(0));
  assert(performance.now() - began >= 1_000, "waits as long as Retry-After says");
  assert.deepEqual(requests.map(({ jobs }) => jobs), Array(5).fill([payment("payment:1")]));
});

test("the last try ends with an UnavailableError", async (context) => {
  const { requests, url } = await start(context, busy());
  const producer = new HTTPProducer(url, "secret", { tries: 2 });
  await assert.rejects(producer.send(payment("payment:1")), (error) => {
    assert(error instanceof UnavailableError);
    assert.match(error.message, /503: Redis is out of reach$/);
    return true;
  });
  assert.equal(requests.length, 2);
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  const nowhere = new HTTPProducer(`http://127.0.0.1:${port}`, "secret", { tries: 1 });
  await assert.rejects(nowhere.send(payment("payment:1")), { name: "UnavailableError", message: /ECONNREFUSED/ });
});

test("a job is sent again whatever the body of a proxy's error", async (context) => {
  for (const errors of [null, "overloaded", { code: 1 }, [null, "overloaded"]]) {
    const { requests, producer } = await start(context, [503, { errors }], accept(1));
    assert.deepEqual(await producer.send(payment("payment:1")), accepted(0));
    assert.equal(requests.length, 2);
  }
});

test("a wait longer than allowed ends the call", async (context) => {
  const { requests, producer } = await start(context, busy("3600"));
  await assert.rejects(producer.send(payment("payment:1")), { name: "UnavailableError", retryAfter: 3_600_000 });
  assert.equal(requests.length, 1);
  const later = await start(context, busy(new Date(Date.now() + 3_600_000).toUTCString()));
  await assert.rejects(later.producer.send(payment("payment:1")), ({ retryAfter }) => retryAfter > 3_000_000);
});

test("a job is sent again if there is no answer in time", async (context) => {
  const { url } = await start(context, silence, accept(1));
  await new HTTPProducer(url, "secret", { timeout: 300 }).send(payment("payment:1"));
});

test("a signal ends the call, also between two tries", async (context) => {
  for (const answer of [silence, busy("1")]) {
    const controller = new AbortController();
    const { producer, requests } = await start(context, answer);
    const sent = producer.send(payment("payment:1"), { signal: controller.signal });
    const poll = setInterval(() => requests.length > 0 && controller.abort(new Error("enough")), 20);
    await assert.rejects(sent, { message: "enough" });
    clearInterval(poll);
    await assert.rejects(producer.send(payment("1"), { signal: controller.signal }), { message: "enough" });
    assert.equal(requests.length, 1);
  }
});

test("the faults that the gateway finds name the field", async (context) => {
  const fault = { field: "[0].type", reason: "is not in the catalog" };
  const { producer } = await start(context, [422, { errors: [fault] }]);
  await assert.rejects(producer.send(payment("payment:1")), (error) => {
    assert(error instanceof InvalidJobError);
    assert.equal(error.message, "type: is not in the catalog");
    return true;
  });
});

test("jobs go in batches of a thousand, and faults name the job", async (context) => {
  const fault = { field: "[17].title", reason: "is longer than 255 characters" };
  const { requests, producer } = await start(context, accept(1_000), [422, { errors: [fault] }]);
  const jobs = Array.from({ length: 1_200 }, (_, index) => payment(String(index)));
  const message = "[1017].title: is longer than 255 characters";
  await assert.rejects(producer.sendMany(jobs), { name: "InvalidJobError", message });
  assert.deepEqual(requests.map(({ jobs }) => jobs.length), [1_000, 200]);
  assert.equal(requests[1].jobs[0].id, "1000");
});

test("large jobs go in batches that the gateway takes", async (context) => {
  const { requests, producer } = await start(context, accept(2), accept(1));
  const jobs = ["1", "2", "3"].map((id) => ({ ...payment(id), body: "x".repeat(3 * 1024 * 1024) }));
  assert.equal((await producer.sendMany(jobs)).length, 3);
  assert.deepEqual(requests.map(({ jobs }) => jobs.length), [2, 1]);
});

test("jobs with many users go in batches that the gateway takes", async (context) => {
  const { requests, producer } = await start(context, accept(398), accept(202));
  const users = Array.from({ length: 1_000 }, (_, index) => String(1_000_000 + index));
  const jobs = Array.from({ length: 600 }, (_, index) => ({ id: String(index), users, type: "payment_received" }));
  assert.equal((await producer.sendMany(jobs)).length, 600);
  assert.deepEqual(requests.map(({ jobs }) => jobs.length), [398, 202]);
});

test("nothing is sent if one job is invalid, or if there is none", async (context) => {
  const { requests, producer } = await start(context, accept(2));
  await assert.rejects(producer.sendMany([payment("1"), payment()]), { message: /^\[1\]\.id: is missing/ });
  assert.deepEqual(await producer.sendMany([]), []);
  assert.equal(requests.length, 0);
});

test("a refusal is not repeated", async (context) => {
  const fault = { field: "[0].type", reason: "is not allowed" };
  for (const [status, body] of [
    [301, "<html>"], [200, { ok: true }], [202, {}], [401, { detail: "no" }], [500, "null"],
    [403, { detail: "no", errors: [fault] }],
  ]) {
    const { requests, producer } = await start(context, [status, body, { location: "/elsewhere" }]);
    await assert.rejects(producer.send(payment("payment:1")), (error) => {
      assert(error instanceof RefusedError);
      assert.equal(error.status, status);
      if (status === 403) assert.match(error.message, /403: no; type: is not allowed$/);
      return true;
    });
    assert.equal(requests.length, 1);
  }
});

test("a bad address or token fails at once, and is not in the error", async () => {
  for (const url of [undefined, "", "localhost:8080", "/v1", "ftp://example.com"]) {
    assert.throws(() => new HTTPProducer(url, "secret"), { message: /^url: must be/ });
  }
  for (const url of ["https://user:secret@a", "https://secret@a", "https://a?token=secret", "https://a/#secret"]) {
    const isSafe = ({ stack, message }) => message.startsWith("url: must not have") && !stack.includes("secret");
    assert.throws(() => new HTTPProducer(url, "t"), isSafe);
  }
  for (const token of ["", "two secrets", "secret\u00e9", undefined]) {
    const sent = new HTTPProducer("http://127.0.0.1", token && (() => token)).send(payment("1"));
    await assert.rejects(sent, (error) => error instanceof TypeError && !error.stack.includes("secret"));
  }
});
