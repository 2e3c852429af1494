// Carillon · admin.js
// SPDX-License-Identifier: Apache-2.0

import { broadcasts } from "./admin-broadcasts.js";
import { catalog } from "./admin-catalog.js";
import { deadLetters } from "./admin-dead-letters.js";
import { deliveries } from "./admin-deliveries.js";
import { jobs } from "./admin-jobs.js";
import { overview } from "./admin-overview.js";
import { people } from "./admin-people.js";
import { simulate } from "./admin-simulate.js";
import { trace } from "./admin-trace.js";
import { h } from "./dom.js";
import { Client } from "./inbox-client.js";
import { Session } from "./session.js";

/**
 * For each view: its name in the URL, its title, and its factory. The factory gets the page, the
 * parts of the URL after the name, and its query; it returns `element`, `update` and `every` (ms).
 */
const views = [
  ["overview", "Overview", overview], ["people", "People", people], ["jobs", "Jobs", jobs],
  ["deliveries", "Deliveries", deliveries],
  ["dead-letters", "Dead letters", deadLetters],
  ["broadcasts", "Broadcasts", broadcasts], ["trace", "Trace", trace], ["simulate", "Simulate", simulate],
  ["catalog", "Catalog", catalog],
];

const session = new Session("admin");
const content = document.getElementById("content");
const nav = document.getElementById("nav");
const state = document.getElementById("state");
const toast = document.getElementById("toast");
let current = null;
let timer = null;
let toastTimer = null;

// The gateway waits up to 40 s for the answer to a test send.
Client.patience = 45_000;
const client = new Client(location.origin, (isRefused) => (isRefused ? null : session.token));

/** The services that views get. */
const page = {
  call: (method, path, body) => client.call(method, path, body),
  /** Returns the answer, or null if there is no such user, job or letter. */
  async callIfThere(path) {
    try {
      return await client.call("GET", path);
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  },
  tell(text) {
    clearTimeout(toastTimer);
    toast.textContent = text;
    toast.classList.add("shown");
    toastTimer = setTimeout(() => toast.classList.remove("shown"), 6_000);
  },
  /** Puts an error into words: its message, and the faults that the message does not name. */
  explain({ message, faults = [] }) {
    const named = faults.map(({ field, reason }) => `${field}: ${reason}`);
    return [message, ...named.filter((fault) => !message.includes(fault))].join(" · ");
  },
  /** Performs an action of the user and shows the outcome. */
  async perform(work, done) {
    try {
      const value = await work();
      if (done) page.tell(typeof done === "function" ? done(value) : done);
      return true;
    } catch (error) {
      failed(error);
      page.tell(page.explain(error));
      return false;
    }
  },
  refresh: () => update(),
};

function route() {
  const [path, query] = location.hash.slice(1).split("?");
  const [name, ...rest] = path.split("/");
  const [key, title, make] = views.find(([known]) => known === name) ?? views[0];
  clearTimeout(timer);
  current = make(page, rest.map(decoded), new URLSearchParams(query));
  for (const link of nav.querySelectorAll("a")) {
    if (link.hash !== `#${key}`) {
      link.removeAttribute("aria-current");
      continue;
    }
    link.setAttribute("aria-current", "page");
    // On a phone the tabs are wider than the screen.
    link.scrollIntoView({ block: "nearest", inline: "center" });
  }
  document.title = `${title} · Carillon`;
  content.replaceChildren(h("h1", null, title), current.element);
  update();
}

/** Decodes a part of the URL; returns one with a stray `%` as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function update() {
  const view = current;
  clearTimeout(timer);
  if (!view) return;
  if (document.visibilityState === "visible") {
    try {
      await view.update?.();
      state.textContent = "";
    } catch (error) {
      failed(error);
    }
  }
  if (view === current && view.every) timer = setTimeout(update, view.every);
}

function failed(error) {
  if (error.kind === "signedOut") leave("The token was refused or has expired.");
  else if (error.status === 403) leave("This token is valid, but its scope is not admin.");
  else if (error.kind === "unreachable") state.textContent = "Cannot reach the gateway";
  else if (error.kind) state.textContent = page.explain(error);
  else throw error;
}

function leave(reason) {
  session.forget();
  // The next token may be another operator's.
  client.token().then((token) => client.token(token));
  current = null;
  clearTimeout(timer);
  nav.hidden = document.getElementById("who").hidden = true;
  content.replaceChildren(session.form({
    title: "Operations", text: "Sign in with a token of the scope admin.",
    hint: "gateway token --user you --scope admin", refused: reason,
  }, begin));
}

function begin() {
  nav.hidden = document.getElementById("who").hidden = false;
  nav.replaceChildren(...views.map(([name, title]) => h("a", { href: `#${name}` }, title)));
  route();
}

document.getElementById("leave").addEventListener("click", () => {
  session.forget();
  // Stop everything that runs, because the next token may be another operator's.
  location.reload();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  content.focus();
});
addEventListener("hashchange", () => {
  if (location.hash.includes("token=")) return location.reload();
  if (session.token) route();
});
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") update(); });

const start = () => (session.token ? begin() : leave());
if (session.offered) content.replaceChildren(await session.question("Operations", start));
else start();
