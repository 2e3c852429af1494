// Carillon · worker_after.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs after the worker of docs/clients/browser.md: shows pushes, and follows and reports clicks.

import assert from "node:assert";

async function dispatch(type, event) {
  let work;
  worker.listeners[type]({ ...event, waitUntil: (promise) => { work = promise; } });
  await work;
}

/** Shows a push, clicks it or one of its buttons, and returns the address that opens. */
async function clicked(message, action = "") {
  const whole = { notification_id: "n1", notification: { title: "Paid", body: "€ 40" }, tag: "n1", ...message };
  await dispatch("push", { data: { json: () => whole } });
  const { data } = worker.shown.at(-1);
  await dispatch("notificationclick", { action, notification: { data, close() {} } });
  return worker.pages.at(-1).href;
}

for (const actions of ["edit", { edit: "Edit" }, [null, "edit"]]) {
  assert.equal(await clicked({ actions }), "https://shop.example.com/?notification=n1");
  assert.deepEqual(worker.shown.at(-1).actions, []);
}
const actions = [{ id: "edit", title: "Edit", url: "/edit/9" }, { id: 2, title: 3 }];
const push = { url: "/invoices/9?all=1", actions, options: { requireInteraction: true, data: { id: "other", more: 1 } } };
assert.equal(await clicked(push), "https://shop.example.com/invoices/9?all=1&notification=n1");
assert.deepEqual(worker.shown.at(-1).actions, [{ action: "edit", title: "Edit" }, { action: "2", title: "3" }]);
assert.equal(worker.shown.at(-1).data.more, 1);
assert.equal(await clicked(push, "2"), "https://shop.example.com/invoices/9?all=1&notification=n1&action=2");
for (const url of ["https://elsewhere.example.com/x", "app://open", "https://"]) {
  assert.equal(await clicked({ url }), "https://shop.example.com/?notification=n1");
}
const address = await clicked(push, "edit");
assert.equal(address, "https://shop.example.com/edit/9?notification=n1&action=edit");

const calls = [];
const client = { call: async (method, path, body) => calls.push([method, path, body?.action]) };
globalThis.location = new URL(address);
globalThis.history = { state: null, replaceState: (state, title, next) => { globalThis.location = new URL(next); } };
await noteOpened({ client });
await noteOpened({ client });
assert.equal(location.href, "https://shop.example.com/edit/9");
assert.deepEqual(calls, [
  ["POST", "/v1/notifications/n1/opened", undefined], ["POST", "/v1/notifications/n1/actions", "edit"],
]);
