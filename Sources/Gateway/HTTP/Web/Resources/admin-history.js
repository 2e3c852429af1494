// Carillon · admin-history.js
// SPDX-License-Identifier: Apache-2.0

import { dateTime, fill, number, pill, table, when } from "./admin-parts.js";
import { outcomeWords, statusKinds } from "./admin-words.js";
import { h, readable } from "./dom.js";

const pageSize = 25;
const columns = ["Time", "Type", "Title", "What became of it", "Seen", "Notification"];

/** A link to the trace of a user's notification. */
export function traceLink(id, user, title = id) {
  return h("a", { href: `#trace/${id}/${encodeURIComponent(user)}`, "aria-label": `Trace: ${title}` }, "Trace");
}

/** The notifications of a user, newest first, with filters that the URL holds. */
export class NotificationHistory {
  #page;
  #user;
  #rows = [];
  #cursor = null;
  #status = h("select", { name: "status" },
    option("", "Any status"), Object.keys(statusKinds).map((status) => option(status, readable(status))));
  #type = h("select", { name: "type" });
  #list = h("div", { class: "notifications" });
  #count = h("p", { class: "hint", role: "status" });
  #more = h("button", { type: "button", class: "plain more", hidden: true, onclick: () => this.#loadMore() }, "Load more");

  constructor(page, user, query) {
    this.#page = page;
    this.#user = user;
    const type = query.get("type") ?? "";
    this.#type.replaceChildren(...[...new Set(["", type])].map(typeOption));
    this.#type.value = type;
    if (query.get("status") in statusKinds) this.#status.value = query.get("status");
    const field = (label, select) => h("label", { class: "field" }, h("span", null, label), select);
    const form = h("form", { class: "filters-form history-filters", onchange: () => this.#filter() },
      field("Status", this.#status), field("Type", this.#type));
    this.element = h("div", { class: "history" }, form, this.#list,
      h("div", { class: "row history-end" }, this.#more, this.#count));
  }

  /** The URL of the user with the filters. */
  get address() {
    const query = this.#query;
    return `#people/${encodeURIComponent(this.#user)}${query ? `?${query}` : ""}`;
  }

  get #query() {
    const chosen = { status: this.#status.value, type: this.#type.value };
    return new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();
  }

  /** Offers types to filter by. */
  offer(types) {
    const chosen = this.#type.value;
    const names = [...new Set(["", chosen, ...types].sort())];
    fill(this.#type, names, () => names.map(typeOption));
    this.#type.value = chosen;
  }

  /** Loads the newest again, and keeps the older ones that follow them. */
  async update() {
    const query = this.#query;
    const found = await this.#load(null);
    if (!found || query !== this.#query) return;
    const first = found.notifications;
    const last = this.#rows.findIndex(({ id }) => id === first.at(-1)?.id);
    const older = last < 0 ? [] : this.#rows.slice(last + 1);
    if (!older.length) this.#cursor = found.next_cursor;
    this.#rows = [...first, ...older];
    this.#show();
  }

  #load(cursor) {
    const query = new URLSearchParams(this.#query);
    query.set("limit", pageSize);
    if (cursor) query.set("cursor", cursor);
    return this.#page.callIfThere(`/v1/admin/users/${encodeURIComponent(this.#user)}/notifications?${query}`);
  }

  async #loadMore() {
    const cursor = this.#cursor;
    await this.#page.perform(async () => {
      const found = await this.#load(cursor);
      // Another click, or another filter, was faster.
      if (!found || cursor !== this.#cursor) return;
      const count = this.#rows.length;
      this.#rows = [...this.#rows, ...found.notifications];
      this.#cursor = found.next_cursor;
      this.#show();
      if (this.#more.hidden) this.#list.querySelectorAll("tbody a")[count]?.focus();
    });
  }

  #filter() {
    history.pushState(null, "", this.address);
    this.#rows = [];
    this.#cursor = null;
    this.#page.refresh();
  }

  #show() {
    this.#more.hidden = !this.#cursor;
    const count = this.#rows.length;
    const text = count ? (this.#cursor ? `${number(count)} shown.` : `All ${number(count)} shown.`) : "";
    if (this.#count.textContent !== text) this.#count.textContent = text;
    fill(this.#list, this.#rows, () => table("Notifications", columns, this.#rows.map((row) => [
      dateTime(row.created_at), readable(row.type), h("bdi", { class: "title" }, row.title || "–"),
      [pill(row.status, statusKinds[row.status]), " ", h("span", { class: "outcome" }, outcomeWords(row))],
      seen(row), traceLink(row.id, this.#user, row.title || row.id),
    ]), this.#query ? "No notification matches the filters." : "No notifications."));
  }
}

const option = (value, text) => h("option", { value }, text);
const typeOption = (type) => option(type, type ? readable(type) : "Any type");

function seen(row) {
  const moments = [["opened", row.opened_at], ["read", row.read_at], ["archived", row.archived_at], ["deleted", row.deleted_at]];
  const known = moments.filter(([, moment]) => moment);
  return known.length ? known.map(([what, moment]) => h("div", { class: "seen" }, `${what} `, when(moment)))
    : h("span", { class: "nothing" }, "–");
}
