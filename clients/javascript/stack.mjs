// Carillon · stack.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Tests the package against a running Carillon, and prints a line for each step.
//
// Reads GATEWAY_URL, SERVICE_TOKEN and REDIS_URL, which `deploy/up` writes to .local/env. The
// gateway needs WEBHOOKS_PRIVATE=on for the last step; without it the program skips the step.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";

import { HTTPProducer, InvalidSignatureError, Producer, StaleSignatureError, verifyWebhook } from "carillon";

const { GATEWAY_URL, SERVICE_TOKEN, REDIS_URL } = process.env;
const run = `javascript-${Date.now()}`;
const producer = new HTTPProducer(GATEWAY_URL, SERVICE_TOKEN);

const job = (id) => ({ id: `${run}:${id}`, user: run, type: "payment_received", title: "Payment received" });
const sleep = (delay) => new Promise((resolve) => setTimeout(resolve, delay));

async function step(name, body) {
  try {
    console.log((await body()) ?? `ok: ${name}`);
  } catch (error) {
    console.log(`FAILED: ${name}:`, error);
    process.exit(1);
  }
}

async function call(method, path, body) {
  const answer = await fetch(GATEWAY_URL + path, {
    method, body: body && JSON.stringify(body), headers: { authorization: `Bearer ${SERVICE_TOKEN}` },
  });
  const text = await answer.text();
  return { ...(text && JSON.parse(text)), code: answer.status };
}

/** Waits until a job is done, and checks how many notifications it stored. */
async function requireStored(id, count, query = "") {
  let answer;
  for (const end = Date.now() + 30_000; Date.now() < end; await sleep(100)) {
    answer = await call("GET", `/v1/jobs/${encodeURIComponent(`${run}:${id}`)}${query}`);
    if (answer.final && answer.reach.stored >= count) break;
  }
  assert.equal(answer.reach?.stored, count, `${id}: ${JSON.stringify(answer)}`);
}

/** Starts a server and returns its address. */
async function listen(context) {
  const server = createServer(context).listen(0, "127.0.0.1");
  await once(server, "listening");
  server.unref();
  return `http://127.0.0.1:${server.address().port}`;
}

async function bytes(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** A minimal Redis client with the commands of node-redis that a Producer uses. */
class Redis {
  #socket;
  #waiting = [];
  #text = "";

  constructor(url) {
    const { hostname, port, username, password, pathname } = new URL(url);
    this.#socket = connect(Number(port || 6379), hostname);
    this.#socket.setEncoding("utf8").on("data", (text) => this.#receive(text));
    if (password) this.command(...["AUTH", username, password].filter(Boolean).map(decodeURIComponent));
    if (pathname.length > 1) this.command("SELECT", pathname.slice(1));
  }

  xAdd(stream, id, fields) { return this.command("XADD", stream, id, ...Object.entries(fields).flat()); }
  xLen(stream) { return this.command("XLEN", stream).then(Number); }
  get(key) { return this.command("GET", key); }
  close() { this.#socket.destroy(); }

  command(...words) {
    const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    this.#socket.write(`*${words.length}\r\n${parts.join("")}`);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  #receive(text) {
    this.#text += text;
    for (let match; (match = /^(?:\$-1|\$\d+\r\n([^\r]*)|([:+-])([^\r]*))\r\n/.exec(this.#text)); ) {
      const [all, bulk, kind, line] = match;
      this.#text = this.#text.slice(all.length);
      const { resolve, reject } = this.#waiting.shift();
      if (kind === "-") reject(new Error(line));
      else resolve(bulk ?? line ?? null);
    }
  }
}

await step("a job over HTTP is stored once, however often it is sent", async () => {
  for (let repeat = 0; repeat < 2; repeat++) await producer.send(job("http"));
  await requireStored("http", 1);
});

await step("1,200 jobs go in two batches", async () => {
  const jobs = Array.from({ length: 1_200 }, (_, index) => job(`many:${index}`));
  const accepted = await producer.sendMany(jobs);
  assert.deepEqual(accepted.map(({ id }) => id), jobs.map(({ id }) => id));
  await requireStored("many:1199", 1);
});

await step("a job with almost every field is accepted", async () => {
  const { title, user, ...rest } = job("full");
  const hour = 3_600_000;
  await producer.send({
    ...rest, users: [user, "ben"], except: ["ben"], org: "acme", body: null,
    vars: { name: "Ben & <Co>", amount: "€ 40", invoice: 9 },
    data: { lines: "a\r\nb", list: [1] }, traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    entity_type: "invoice", entity_id: "9", category: "payments", sound: "bell", state: "paid", url: "/invoices/9",
    image: "https://example.com/a.png", badge: 0, platform: { fcm: {} }, severity: "info", delivery: "in_app",
    lane: "normal", push_priority: "high", channels: ["in_app"], collapse_key: "invoice:9", deliver_at: new Date(),
    expires_at: new Date(Date.now() + hour), keep_until: new Date(Date.now() + 2 * hour),
  });
  await requireStored("full", 1, "?org=acme");
});

await step("the gateway's faults name the job", async () => {
  const typo = { ...job("typo"), type: "payment_recieved" };
  const name = "InvalidJobError";
  await assert.rejects(producer.send(typo), { name, message: "type: is not in the catalog" });
  await assert.rejects(producer.sendMany([job("fine"), typo]), { name, message: "[1].type: is not in the catalog" });
});

await step("a wrong token is refused at once", async () => {
  const sent = new HTTPProducer(GATEWAY_URL, "wrong").send(job("refused"));
  await assert.rejects(sent, { name: "RefusedError", status: 401 });
});

await step("a job arrives once after 503, a lost connection and a lost answer", async () => {
  const requests = [];
  const url = await listen(async (request, response) => {
    const body = await bytes(request);
    const count = requests.push(String(body));
    if (count === 1) return response.writeHead(503, { "retry-after": "2" }).end("{}");
    const { authorization } = request.headers;
    const forward = () => fetch(GATEWAY_URL + request.url, { method: "POST", body, headers: { authorization } });
    // The gateway accepts the job of the third request, but the client never gets the answer.
    if (count === 3) await forward();
    if (count < 4) return request.socket.resetAndDestroy();
    const answer = await forward();
    response.writeHead(answer.status).end(await answer.text());
  });
  const began = performance.now();
  await new HTTPProducer(url, SERVICE_TOKEN).send(job("retry"));
  assert(performance.now() - began >= 2_000);
  assert.equal(requests.length, 4);
  assert.equal(new Set(requests).size, 1);
  await requireStored("retry", 1);
});

await step("jobs over Redis are stored once, in every lane", async () => {
  if (!REDIS_URL?.startsWith("redis://")) return "skipped: this program needs redis://host:port in REDIS_URL";
  const redis = new Redis(REDIS_URL);
  const direct = new Producer(redis, { spread: true });
  for (const lane of [undefined, "critical", "normal", "bulk"]) {
    const one = { ...job(`redis:${lane}`), lane, data: { lines: "a\r\nb", word: "é" } };
    assert.match(await direct.send(one), /^\d+-\d+$/);
    assert.equal(await direct.sendMany([one, one]), 2);
    await requireStored(`redis:${lane}`, 1);
  }
  const jobs = Array.from({ length: 1_200 }, (_, index) => ({ ...job(`bulk:${index}`), lane: "bulk" }));
  assert.equal(await direct.sendMany(jobs), 1_200);
  await requireStored("bulk:1199", 1);
  redis.close();
});

await step("a webhook's events are verified", async () => {
  const requests = [];
  const url = await listen(async (request, response) => {
    requests.push({ body: await bytes(request), header: request.headers["carillon-signature"] });
    response.writeHead(204).end();
  });
  const hook = await call("POST", "/v1/webhooks", { url: `${url}/${run}` });
  if (hook.code === 422) return "skipped: the gateway refuses webhooks to this machine; set WEBHOOKS_PRIVATE=on";
  assert.equal(hook.code, 201);
  try {
    // Dispatchers learn of a new webhook within seconds.
    for (let repeat = 0; requests.length === 0 && repeat < 60; repeat++) {
      await producer.send(job(`webhook:${repeat}`));
      await sleep(500);
    }
    const { body, header } = requests[0];
    const [event] = await verifyWebhook(body, header, ["former", hook.secret]);
    assert(event.id && event.event && Date.now() - event.at < 3_600_000);
    const changed = Buffer.concat([body, Buffer.from(" ")]);
    await assert.rejects(verifyWebhook(changed, header, hook.secret), InvalidSignatureError);
    const later = { now: new Date(Date.now() + 3_600_000) };
    await assert.rejects(verifyWebhook(body, header, hook.secret, later), StaleSignatureError);
  } finally {
    await call("DELETE", `/v1/webhooks/${hook.id}`);
  }
});
process.exit();
