// Carillon · admin-parts.js
// SPDX-License-Identifier: Apache-2.0

import { channelList, channelName, followUpName, reasonWords, wayWords } from "./admin-words.js";
import { h, readable } from "./dom.js";
import { ago, exactly } from "./time.js";

const language = document.documentElement.lang;

/** Formats a number; `–` for none. */
export function number(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString(language);
}

/** Formats a share as a percentage; `–` if the whole is 0. */
export function share(part, whole) {
  if (!whole) return "–";
  // Small parts and small losses must not round away.
  const isFine = part && part < whole && (part < whole * 0.1 || part > whole * 0.99);
  const value = isFine ? Math.min(part / whole, part > whole * 0.99 ? 0.999 : 1) : part / whole;
  return value.toLocaleString(language, { style: "percent", maximumFractionDigits: isFine ? 1 : 0 });
}

/** Formats seconds as `12 s`, `3 min`, `2 h` or `30 days`. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/** The current text of each element with a relative time. */
const relativeTexts = new WeakMap();

/** A time relative to now, which {@link fill} keeps up to date, with the full time as its title. */
function relative(moment, text) {
  const element = h("time", { datetime: moment, title: exactly(moment, language) }, text());
  relativeTexts.set(element, text);
  return element;
}

/** A past time, relative to now. */
export function when(moment) {
  return moment ? relative(moment, () => ago(moment, language, "now")) : "–";
}

/** A date and time to the second, in the operator's zone. */
export function dateTime(text) {
  const date = new Date(text);
  const year = date.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  const words = date.toLocaleString(language, {
    year, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  });
  return h("time", { datetime: text, title: exactly(text, language) }, words);
}

/** A link to the view of a user. */
export function personLink(id) {
  return h("a", { href: `#people/${encodeURIComponent(id)}` }, h("code", null, id));
}

/** The URL of the view of a job, named by its id or its entry. */
export function jobAddress(id, org = "") {
  return `#jobs/${encodeURIComponent(id)}${org ? `?${new URLSearchParams({ org })}` : ""}`;
}

/** A link to the view of a job. */
export function jobLink(id, org = "") {
  return h("a", { href: jobAddress(id, org) }, h("code", null, id));
}

/** A future time, relative to now. */
export function until(moment) {
  return moment ? relative(moment, () => ahead(moment)) : "–";
}

function ahead(moment) {
  const seconds = Math.ceil((Date.parse(moment) - Date.now()) / 1000);
  const format = new Intl.RelativeTimeFormat(language, { style: "narrow" });
  const [unit, length] = [["second", 1], ["minute", 60], ["hour", 3_600]].findLast(([, length]) => seconds >= 2 * length)
    ?? ["second", 1];
  return seconds < 1 ? "now" : format.format(Math.round(seconds / length), unit);
}

/** A word with a colour for good or bad. The word alone must carry the meaning. */
export function pill(text, kind = "neutral") {
  return h("span", { class: `pill ${kind}` }, text);
}

/** A titled section of a view. */
export function card(title, ...children) {
  const heading = h("h2", null, title);
  return h("section", { class: "card" }, heading, ...children);
}

/**
 * A table that scrolls when it is too wide; on a phone the rows of one with more than three columns
 * become cards. A `#` before a column title marks numbers.
 */
export function table(caption, columns, rows, empty = "None.") {
  if (rows.length === 0) return h("p", { class: "hint empty" }, empty);
  const titles = columns.map((column) => column.replace(/^#/, ""));
  const numeric = columns.map((column) => (column.startsWith("#") ? "number" : null));
  // Browsers drop a table's own roles once CSS makes blocks of its parts.
  return h("div", { class: columns.length > 3 ? "scroller stacks" : "scroller", tabindex: "0", role: "group", "aria-label": caption },
    h("table", { role: "table" }, h("caption", { class: "spoken" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, titles.map((title, index) =>
        h("th", { role: "columnheader", scope: "col", class: numeric[index] }, title)))),
      h("tbody", { role: "rowgroup" }, rows.map((cells) => h("tr", { role: "row" }, cells.map((cell, index) =>
        h("td", { role: "cell", class: numeric[index], "data-label": titles[index] }, content(cell))))))));
}

/** The content of a cell as one node, which a card can lay out next to its label. */
function content(cell) {
  if (Array.isArray(cell)) return h("div", { class: "cell" }, cell);
  return cell instanceof Node ? cell : String(cell ?? "–");
}

/** A list of names and values. */
export function facts(entries, name = null) {
  return h("dl", { class: name }, entries.map(([term, value]) =>
    h("div", null, h("dt", null, term), h("dd", null, value instanceof Node ? value : String(value)))));
}

/** A share as a bar with its percentage. */
export function bar(part, whole, kind = "") {
  const filled = h("span", { class: `filled ${kind}` });
  filled.style.inlineSize = `${whole ? Math.min(100, (100 * part) / whole) : 0}%`;
  return h("span", { class: "bar" }, h("span", { class: "track", "aria-hidden": "true" }, filled),
    h("span", { class: "bar-text" }, share(part, whole)));
}

/**
 * Replaces the children of an element if `key` changed; otherwise focus and open details stay, and
 * only relative times change.
 *
 * Returns the focus to a child that is still there, or to the same link or table of the new ones.
 */
export function fill(place, key, make) {
  const text = JSON.stringify(key);
  if (place.dataset.key === text) {
    for (const element of place.querySelectorAll("time")) {
      const current = relativeTexts.get(element)?.();
      if (current && element.textContent !== current) element.textContent = current;
    }
    return;
  }
  place.dataset.key = text;
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  place.replaceChildren(...[make()].flat());
  if (!focused) return;
  const name = (element) => element.getAttribute("href") ?? element.getAttribute("aria-label");
  const same = place.contains(focused) ? focused
    : name(focused) && [...place.querySelectorAll(focused.localName)].find((other) => name(other) === name(focused));
  same?.focus({ preventScroll: true });
}

/**
 * Shows children in this order. Unlike `replaceChildren`, it does not move children that stay, so
 * they keep focus, caret and scroll position.
 */
export function arrange(place, elements) {
  for (const child of [...place.children]) {
    if (!elements.includes(child)) child.remove();
  }
  elements.forEach((element, index) => {
    if (place.children[index] !== element) place.insertBefore(element, place.children[index] ?? null);
  });
}

/**
 * Loads the first `count` pages of a list: the `items` of its member `name`, and the `cursor` of
 * the page after them.
 */
export async function firstPages(page, path, name, query, count) {
  let items = [];
  let cursor = null;
  for (let index = 0; index < count && (index === 0 || cursor); index += 1) {
    const next = await page.call("GET", `${path}?${new URLSearchParams({ ...query, ...(cursor ? { cursor } : {}) })}`);
    items = [...items, ...next[name]];
    cursor = next.next_cursor;
  }
  return { items, cursor };
}

/** Performs `work`. If the gateway refuses, shows why in `place` and returns null. */
export async function orFault(page, place, work) {
  try {
    const value = await work();
    place.textContent = "";
    return value;
  } catch (error) {
    if (error.kind !== "refused" || error.status === 403) throw error;
    const text = page.explain(error);
    // Screen readers would repeat a text that is set again.
    if (place.textContent !== text) place.textContent = text;
    return null;
  }
}

/** Asks the user to confirm; resolves to true on yes. The elements of `more` follow the text. */
export function confirm(title, text, label, kind = "danger", ...more) {
  return new Promise((resolve) => {
    const yes = h("button", { class: kind, value: "yes" }, label);
    const form = h("form", { method: "dialog" }, h("h2", { id: "ask-title" }, title), h("p", null, text), ...more,
      h("div", { class: "row" },
        h("button", { class: "plain", value: "no", autofocus: true, formnovalidate: true }, "Go back"), yes));
    // Enter in an input would press the first button.
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.target.localName !== "input") return;
      event.preventDefault();
      form.requestSubmit(yes);
    });
    const dialog = h("dialog", { class: "ask", "aria-labelledby": "ask-title" }, form);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A reason in words, followed by its id for searching in logs; a provider's own as it is. */
export function reasonText(reason) {
  const words = reasonWords(reason);
  return words === reason ? reason : h("span", null, words, " (", h("code", null, reason), ")");
}

/** The details of steps that are the gateway's terms, by name. */
const terms = {
  channels: (list) => channelList(list.split(",")), provider: channelName, reason: reasonText, until: dateTime,
};

/** Returns the details of a step of a trace or simulation, [name, value], for a timeline. */
export function detailsOf({ at, event, step = event, ...details }) {
  const known = Object.entries(details).filter(([, value]) => value !== null && value !== "");
  return known.map(([name, value]) => {
    if (name === "via") return ["How", wayWords(value)];
    if (name === "milliseconds") return ["Took", `${number(value)} ms`];
    if (name === "what" && ["due", "postpone"].includes(step)) return ["What", followUpName(value)];
    return [readable(name), terms[name]?.(value) ?? value];
  });
}

/** A timeline: entries with `at`, `title`, `kind` and `details` ([name, value]). */
export function timeline(entries, label) {
  const first = entries.length ? Date.parse(entries[0].at) : 0;
  return h("ol", { class: "timeline", "aria-label": label }, entries.map((entry) => h("li", { class: entry.kind ?? "" },
    h("div", { class: "moment" }, h("time", { datetime: entry.at, title: exactly(entry.at, language) },
      new Date(entry.at).toLocaleTimeString(language, { timeStyle: "medium", hourCycle: "h23" })),
    h("span", null, offset(Date.parse(entry.at) - first))),
    h("div", { class: "event" }, h("strong", null, entry.title),
      entry.details?.length ? facts(entry.details) : null))));
}

function offset(milliseconds) {
  if (milliseconds <= 0) return "";
  if (milliseconds < 1000) return `+${milliseconds} ms`;
  return `+${milliseconds < 10_000 ? (milliseconds / 1000).toFixed(1) + " s" : span(milliseconds / 1000)}`;
}
