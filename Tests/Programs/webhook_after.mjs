// Carillon · webhook_after.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs after the blocks of docs/events.md: `verify` accepts a request and refuses a changed one.

import assert from "node:assert";
import { createServer } from "node:http";

async function call(path, body) {
  const answer = await fetch(process.env.GATEWAY_URL + path, {
    method: "POST",
    headers: { authorization: `Bearer ${process.env.SERVICE_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return answer.json();
}

const server = createServer();
const request = new Promise((resolve) => {
  server.on("request", async (incoming, answer) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    answer.writeHead(204).end();
    resolve({ body: Buffer.concat(chunks), header: incoming.headers["carillon-signature"] });
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const { secret } = await call("/v1/webhooks", { url: `http://127.0.0.1:${server.address().port}/javascript` });
// Dispatchers learn of a new webhook within seconds.
const jobs = setInterval(() => call("/v1/jobs", { user: "ada", type: "payment_received", title: "Told by webhook" }), 500);
const { body, header } = await request;
clearInterval(jobs);
assert(verify(body, header, secret));
assert(!verify(Buffer.concat([body, Buffer.from(" ")]), header, secret));
assert(!verify(body, header, `${secret}x`));
assert(!verify(body, header, secret, -1));
for (const bad of [undefined, "", "x", "t=1", "v1=", "t=é,v1=é", header.replace("v1=", "v1=é")]) {
  assert.strictEqual(verify(body, bad, secret), false);
}
console.log("verified by JavaScript");
process.exit(0);
