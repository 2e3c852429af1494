// Carillon · webhook.test.js
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import test from "node:test";

import { InvalidSignatureError, StaleSignatureError, verifyWebhook } from "carillon";

const moment = Date.parse("2026-11-20T10:00:00.000Z");
const body = Buffer.from(
  '{"events":[{"id":"1-0","event":"sent","at":"2026-11-20T10:00:00.000Z","job":"payment:é","reason":null}]}',
);
const secret = "whsec";

/** Signs as docs/events.md says. */
function sign(body, { key = secret, time = String(moment / 1_000) } = {}) {
  return `t=${time},v1=${createHmac("sha256", key).update(`${time}.`).update(body).digest("hex")}`;
}

const now = new Date(moment + 60_000);

test("a signed request gives its events", async () => {
  const header = sign(body);
  const [time, code] = header.split(",");
  for (const [content, given, secrets] of [
    [body, header, secret], [body.toString(), header, [secret]], [new Uint8Array(body), header, ["old", secret]],
    [body, `${time}, ${code}, v2=x`, secret], [body, `v1=00,${header}`, secret], [body, [header], secret],
  ]) {
    const events = await verifyWebhook(content, given, secrets, { now });
    const at = new Date(moment);
    assert.deepEqual(events, [{ id: "1-0", event: "sent", at, job: "payment:é", reason: null }]);
  }
});

test("what Carillon did not sign is refused", async () => {
  const header = sign(body);
  for (const [content, given, secrets] of [
    [Buffer.concat([body, Buffer.from(" ")]), header, secret], [body, header, "another"], [body, undefined, secret],
    [body, "", secret], [body, header.split(",")[0], secret], [body, header.split(",")[1], secret],
    [body, `${header},t=1`, secret], [body, header.slice(0, -1), secret], [body, sign(body, { time: "x" }), secret],
    [body, header.replace("t=1795168800", "t=1795168801"), secret], [Buffer.from("[]"), sign("[]"), secret],
  ]) {
    await assert.rejects(verifyWebhook(content, given, secrets, { now }), InvalidSignatureError);
  }
});

test("old times are refused", async () => {
  for (const distance of [-301_000, 301_000, 3_600_000]) {
    const sent = verifyWebhook(body, sign(body), secret, { now: new Date(moment + distance) });
    await assert.rejects(sent, StaleSignatureError);
  }
  await assert.rejects(verifyWebhook(body, sign(body), secret), StaleSignatureError);
  await assert.rejects(verifyWebhook(body, sign(body), secret, { now: new Date(NaN) }), StaleSignatureError);
  await verifyWebhook(body, sign(body), secret, { now: new Date(moment + 600_000), tolerance: 600 });
});

test("a missing secret and a parsed body are mistakes of the receiver", async () => {
  for (const secrets of [undefined, "", [], [secret, ""]]) {
    await assert.rejects(verifyWebhook(body, sign(body, { key: "" }), secrets, { now }), { message: /^secrets: / });
  }
  await assert.rejects(verifyWebhook(JSON.parse(body), sign(body), secret, { now }), { message: /^body: / });
});
