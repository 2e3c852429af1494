// Carillon · receiver_after.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs after the blocks of docs/producers/javascript.md: a stranger's request does not end the
// receiver, which then stores signed events.

import assert from "node:assert";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";

const stored = [];
async function store(event) {
  stored.push(event.id);
}

/** Posts a body to the receiver, and returns the status. */
async function post(body, headers = {}) {
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/`, { method: "POST", body, headers });
  return answer.status;
}

if (!server.listening) await once(server, "listening");

const stranger = connect(server.address().port, "127.0.0.1");
const received = once(server, "request");
stranger.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{");
const [request] = await received;
const closed = new Promise((resolve) => request.on("close", resolve));
stranger.destroy();
await closed;

// The receiver closes the connection before it has read everything.
const large = await post(Buffer.alloc(8 * 1024 * 1024)).catch(() => "closed");
assert([500, "closed"].includes(large), `a large body: ${large}`);

const body = JSON.stringify({ events: [{ id: "1-0", event: "sent", at: "2026-11-20T10:00:00.000Z" }] });
const time = Math.floor(Date.now() / 1_000);
const code = createHmac("sha256", process.env.WEBHOOK_SECRET).update(`${time}.${body}`).digest("hex");
assert.equal(await post(body), 400);
assert.equal(await post(body, { "carillon-signature": `t=${time},v1=${code}` }), 204);
assert.deepEqual(stored, ["1-0"]);
console.log("the receiver survives a truncated request");
process.exit(0);
