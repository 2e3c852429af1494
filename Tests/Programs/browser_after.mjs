// Carillon · browser_after.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs after the inbox of docs/clients/browser.md: gets and reads a notification, misses one during
// a pause, deletes it and brings it back.

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

const { store } = inbox;
await until("it is online", () => inbox.state === "online");
await send("Payment received");
await until("it arrived", () => store.unread === 1 && store.list()[0]?.title === "Payment received");
await inbox.markRead(store.list()[0].id);
await until("it is read", () => store.unread === 0 && store.list()[0].read_at);

const arrivals = [];
inbox.addEventListener("arrival", ({ detail }) => arrivals.push(detail.title));
inbox.pause();
await send("While it was away");
await until("it is stored", async () => (await inbox.client.call("GET", "/v1/notifications/unread-count")).unread === 1);
inbox.resume();
await until("the missed one arrived", () => arrivals.length === 1 && store.list().length === 2 && store.unread === 1);

const { id } = store.list()[0];
if (!(await inbox.remove(id)) || store.list().length !== 1) throw new Error("it is not deleted");
if (!(await inbox.restore(id))) throw new Error("it is not restored");
await until("it is back", () => store.list().length === 2);
inbox.close();
if (arrivals.join() !== "While it was away") throw new Error(`arrivals: ${arrivals}`);
