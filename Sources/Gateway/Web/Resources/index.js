// Carillon · index.js
// SPDX-License-Identifier: Apache-2.0

import "../carillon.js";
import { h } from "./dom.js";
import { Session } from "./session.js";

const session = new Session("inbox");
const place = document.getElementById("place");
const who = document.getElementById("who");
const tabs = new BroadcastChannel("carillon session");

function showInbox() {
  document.getElementById("name").textContent = session.user ?? "";
  who.hidden = false;
  const inbox = h("carillon-inbox", { view: "page", worker: "/sw.js", token: session.token });
  inbox.addEventListener("carillon-unread", ({ detail }) => {
    document.title = detail.unread ? `(${detail.unread}) Notifications` : "Notifications";
  });
  inbox.addEventListener("carillon-signed-out", () => leave("The token is refused or has expired."), { once: true });
  place.replaceChildren(inbox);
}

function showForm(refused) {
  who.hidden = true;
  document.title = "Notifications";
  place.replaceChildren(session.form({
    title: "Your notifications",
    text: "A token of your app says who you are.",
    hint: "For a try: gateway token --user ada",
    refused,
  }, showInbox));
}

function leave(reason) {
  session.forget();
  showForm(reason);
}

document.getElementById("leave").addEventListener("click", () => {
  leave();
  tabs.postMessage("left");
});
tabs.addEventListener("message", () => { if (!session.token) showForm(); });
addEventListener("hashchange", () => { if (location.hash.includes("token=")) location.reload(); });

if (session.token) showInbox();
else showForm();
