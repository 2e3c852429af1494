// Carillon · stream_after.mjs
// SPDX-License-Identifier: Apache-2.0
//
// What happens to the stream of docs/clients/browser.md, after what happened to its inbox: it is lost, and the token ends.

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
await until("it has what it missed", () => afterwards().some(({ title }) => title === "While the stream was lost"));
const later = all("sync").slice(1);
if (later.some(({ reset, notifications }) => reset || notifications.some(({ title }) => title === "Over the stream"))) {
  throw new Error(`it does not go on from where it was: ${JSON.stringify(later)}`);
}
// A ticket is good once: it takes a new one, and so a new EventSource.
if (EventSource.opened.length !== 2) throw new Error(`${EventSource.opened.length} were opened`);

const revoked = await fetch(`${url}/v1/users/ada/revoke-tokens`, {
  method: "POST",
  headers: { authorization: `Bearer ${process.env.SERVICE_TOKEN}` },
});
if (!revoked.ok) throw new Error(await revoked.text());
await until("it asks for a fresh token", () => asked.includes(true));
end();
