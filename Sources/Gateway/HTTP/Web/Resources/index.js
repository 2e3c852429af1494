// Carillon · index.js
// SPDX-License-Identifier: Apache-2.0

import "../carillon.js";
import { h } from "./dom.js";
import { Session, userOf } from "./session.js";
import { language } from "./texts.js";

const session = new Session("inbox");
const place = document.getElementById("place");
const who = document.getElementById("who");
const tabs = new BroadcastChannel("carillon session");
// The element reads its language from the document.
const { tag, texts, direction } = await language();
Object.assign(document.documentElement, { lang: tag, dir: direction });
document.getElementById("leave").textContent = texts.signOut;
document.title = texts.notifications;

function showInbox() {
  const { token } = session;
  const name = document.getElementById("name");
  name.textContent = "";
  userOf(token).then((user) => { if (token === session.token) name.textContent = user ?? ""; });
  who.hidden = false;
  const inbox = h("carillon-inbox", { view: "page", worker: "/sw.js?icons", token });
  inbox.addEventListener("carillon-unread", ({ detail }) => {
    document.title = detail.unread ? `(${detail.unread}) ${texts.notifications}` : texts.notifications;
  });
  inbox.addEventListener("carillon-signed-out", () => {
    // Another tab may have signed in again meanwhile.
    if (session.token === token) leave(texts.tokenRefused);
    else show();
  }, { once: true });
  place.replaceChildren(inbox);
}

function showForm(refused) {
  who.hidden = true;
  document.title = texts.notifications;
  place.replaceChildren(session.form({
    title: texts.signInTitle, text: texts.signInText, hint: texts.tokenHint, texts, refused,
  }, showInbox));
}

function show() {
  if (session.token) showInbox();
  else showForm();
}

function leave(reason) {
  session.forget();
  showForm(reason);
}

document.getElementById("leave").addEventListener("click", async () => {
  // The next user of this browser must not get the pushes of this one.
  const off = place.querySelector("carillon-inbox")?.switchPushOff();
  const patience = new Promise((resolve) => setTimeout(resolve, 3_000));
  await Promise.race([off, patience]).catch((error) => console.warn("carillon:", error.message));
  leave();
  tabs.postMessage("left");
});
tabs.addEventListener("message", () => { if (!session.token) showForm(); });
addEventListener("hashchange", () => { if (location.hash.includes("token=")) location.reload(); });

if (session.offered) place.replaceChildren(await session.question(texts.signInTitle, show, texts));
else show();
