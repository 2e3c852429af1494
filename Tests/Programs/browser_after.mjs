// Carillon · browser_after.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs after the inbox of docs/clients/browser.md: gets and reads a notification, reconnects,
// closes and opens the inbox while it fetches a token, gives it a text that is no token, loses what
// comes over a link, brings a message after the close, and sets the clock ahead.

async function until(what, condition) {
  for (let tries = 0; !(await condition()); tries++) {
    if (tries > 400) throw new Error(`timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function send(title) {
  const answer = await fetch(`${url}/v1/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${process.env.SERVICE_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ user: "ada", type: "payment_received", title }),
  });
  if (!answer.ok) throw new Error(await answer.text());
}

await until("it is online", () => inbox.state === "online");
inbox.focus(true);
await send("Payment received");
await until("it arrived", () => inbox.unread === 1 && inbox.list()[0]?.title === "Payment received");
await inbox.read([inbox.list()[0].id]);
await until("it is read", () => inbox.unread === 0 && inbox.list()[0].read_at);

inbox.close();
await send("While it was away");
await until("it is stored", async () => (await inbox.call("GET", "/v1/notifications/unread-count")).unread === 1);
const missed = [];
inbox.addEventListener("arrival", ({ detail }) => missed.push(detail.title));
inbox.open();
await until("the missed notification arrived", () => missed.join() === "While it was away");
await until("old and missed notifications are listed", () => inbox.list().length === 2 && inbox.unread === 1);
const { id } = inbox.list()[0];
await inbox.call("DELETE", `/v1/notifications/${id}`);
await until("it is deleted locally too", () => inbox.list().length === 1);

const arrivals = [];
inbox.addEventListener("arrival", ({ detail }) => arrivals.push(detail.title));
await inbox.call("POST", `/v1/notifications/${id}/restore`);
await until("it is back", () => inbox.list().length === 2);
if (arrivals.length > 0) throw new Error(`arrived when it was brought back: ${arrivals}`);

const states = [];
inbox.addEventListener("state", ({ detail }) => states.push(detail));
let freeToken;
tokenIsFree = new Promise((resolve) => { freeToken = resolve; });
const socketsBefore = sockets.length;
inbox.close();
inbox.open();
await until("the old socket is closed", () => sockets.every((socket) => socket.readyState === WebSocket.CLOSED));
inbox.close();
inbox.open();
freeToken();
await until("it is online again", () => inbox.state === "online");
inbox.open();
if (states.join() !== "offline,connecting,offline,connecting,online") throw new Error(`states: ${states}`);
if (sockets.length !== socketsBefore + 1) throw new Error(`opened ${sockets.length - socketsBefore} sockets`);

inbox.close();
tokenIsFree = Promise.resolve("no token");
inbox.open();
await until("the text is refused", () => inbox.state === "offline");
tokenIsFree = Promise.resolve();
await until("it came back", () => inbox.state === "online");
inbox.close();

// A link that is open, but brings nothing more.
const start = globalThis.setTimeout;
const probes = [];
globalThis.setTimeout = (work, wait) => {
  if (![Inbox.probeInterval, Inbox.probePatience].includes(wait)) return start(work, wait);
  probes.push(work);
};
inbox.open();
await until("it is online before the link is lost", () => inbox.state === "online");
const socketsOnline = sockets.length;
sockets.at(-1).onmessage = null;
for (const name of ["interval", "patience"]) {
  const probe = probes.pop();
  if (!probe) throw new Error(`no ${name} of a probe`);
  probe();
}
await until("another socket is online", () => sockets.length === socketsOnline + 1 && inbox.state === "online");
inbox.close();
probes.length = 0;
sockets.at(-1).onmessage({ data: '{"type":"done"}' });
if (probes.length > 0) throw new Error("a late message makes a closed inbox look for its link");
globalThis.setTimeout = start;

// Every token looks expired.
const now = Date.now;
Date.now = () => now() + 86_400_000;
const waits = [];
globalThis.setTimeout = (work, wait) => {
  waits.push(wait);
  return start(work, wait);
};
inbox.open();
await until("it keeps a renewed token for a while", () => waits.includes(30_000));
inbox.close();
Date.now = now;
globalThis.setTimeout = start;
if (waits.filter((wait) => wait === 1_000).length !== 1) throw new Error(`waits: ${waits}`);
