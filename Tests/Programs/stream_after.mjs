// Carillon · stream_after.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs after the stream of docs/clients/browser.md: the stream is lost, then the token is revoked.

const messages = [];
const asked = [];
const all = (type) => messages.filter((message) => message.type === type);
const end = stream(
  url,
  (isRefused) => {
    asked.push(isRefused);
    return fetchToken();
  },
  (message) => messages.push(message),
);

await until("the first sync streams", () => all("sync").length === 1);
await send("Over the stream");
await until("it streams", () => all("notification").some(({ notification }) => notification.title === "Over the stream"));

EventSource.opened.at(-1).cut();
await send("While the stream was lost");
const afterwards = () => [
  ...all("sync").slice(1).flatMap(({ notifications }) => notifications),
  ...all("notification").map(({ notification }) => notification),
];
await until("the missed notification arrived", () => afterwards().some(({ title }) => title === "While the stream was lost"));
const later = all("sync").slice(1);
if (later.some(({ reset, notifications }) => reset || notifications.some(({ title }) => title === "Over the stream"))) {
  throw new Error(`the stream did not resume: ${JSON.stringify(later)}`);
}
// A ticket is valid once, so a reconnect needs a new ticket and a new EventSource.
if (EventSource.opened.length !== 2) throw new Error(`opened ${EventSource.opened.length} streams instead of 2`);

// The network or the user comes back: a link that died meanwhile may look open.
for (const [sign, title] of [["online", "While it was offline"], ["visibilitychange", "While it was hidden"]]) {
  const { length } = EventSource.opened;
  document.visibilityState = sign === "online" ? "hidden" : "visible";
  document.dispatchEvent(new Event(sign));
  document.dispatchEvent(new Event(sign));
  await until(`it opens a stream (${sign})`, () => EventSource.opened.length > length);
  await send(title);
  await until(`it streams (${sign})`, () => afterwards().some((one) => one.title === title));
  const open = EventSource.opened.filter(({ readyState }) => readyState !== EventSource.CLOSED);
  if (open.length !== 1) throw new Error(`${open.length} streams are open (${sign})`);
}

const revoked = await fetch(`${url}/v1/users/ada/revoke-tokens`, {
  method: "POST",
  headers: { authorization: `Bearer ${process.env.SERVICE_TOKEN}` },
});
if (!revoked.ok) throw new Error(await revoked.text());
await until("it asks for a fresh token", () => asked.includes(true));
end();
