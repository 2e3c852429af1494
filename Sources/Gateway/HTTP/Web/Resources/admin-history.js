// Carillon · admin-history.js
// SPDX-License-Identifier: Apache-2.0

import { Filters, statusFilter } from "./admin-filters.js";
import { Field } from "./admin-forms.js";
import { dateTime, fill, jobAddress, number, personLink, pill, table, when } from "./admin-parts.js";
import { Resend } from "./admin-resend.js";
import { outcomeWords, statusKinds } from "./admin-words.js";
import { h, readable } from "./dom.js";
import { unmarked } from "./marks.js";

const pageSize = 25;

/** A link to the trace of a user's notification. */
export function traceLink(id, user, title = id) {
  return h("a", { href: `#trace/${id}/${encodeURIComponent(user)}`, "aria-label": `Trace: ${title}` }, "Trace");
}

/** The notifications of a user, newest first. */
export const ofUser = (user) => ({
  path: `/v1/admin/users/${encodeURIComponent(user)}/notifications`, address: `#people/${encodeURIComponent(user)}`, user,
});

/** The notifications of a job, by user. */
export const ofJob = (job, org) => ({
  path: `/v1/admin/jobs/${encodeURIComponent(job)}/notifications`, address: jobAddress(job), job, org,
});

/** Notifications with filters that the URL holds. */
export class NotificationHistory {
  #page;
  #source;
  /** The newest page, and the rows that follow it. */
  #first = { notifications: [], next_cursor: null };
  #older = [];
  /** Where the next page begins; null at the end. */
  #cursor = null;
  #resends = new Map();
  #type = h("select", { name: "type" });
  #filters;
  #list = h("div", { class: "notifications" });
  #count = h("p", { class: "hint", role: "status" });
  #more = h("button", { type: "button", class: "plain more", hidden: true, onclick: () => this.#loadMore() }, "Load more");

  /** @param source of {@link ofUser} or {@link ofJob}. */
  constructor(page, source, query) {
    this.#page = page;
    this.#source = source;
    this.#type.replaceChildren(...[...new Set(["", query.get("type") ?? ""])].map(typeOption));
    const fields = source.user === undefined ? [statusFilter()] : [statusFilter(), new Field("Type", this.#type)];
    this.#filters = new Filters(query, fields, () => this.#filter());
    this.element = h("div", { class: "history" }, this.#filters.element, this.#list,
      h("div", { class: "row history-end" }, this.#more, this.#count));
  }

  /** The URL of the view with the filters. */
  get address() {
    const query = this.#query;
    return `${this.#source.address}${query ? `?${query}` : ""}`;
  }

  get #query() {
    const chosen = { org: this.#source.org, ...this.#filters.values };
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
    if (found.next_cursor !== this.#first.next_cursor) {
      const rows = this.#rows;
      const last = rows.findIndex(({ id }) => id === found.notifications.at(-1)?.id);
      this.#older = last < 0 || !found.next_cursor ? [] : rows.slice(last + 1);
      if (!this.#older.length) this.#cursor = found.next_cursor;
    }
    this.#first = found;
    this.#show();
  }

  get #rows() { return [...this.#first.notifications, ...this.#older]; }

  #load(cursor) {
    const query = new URLSearchParams(this.#query);
    query.set("limit", pageSize);
    if (cursor) query.set("cursor", cursor);
    return this.#page.callIfThere(`${this.#source.path}?${query}`);
  }

  async #loadMore() {
    await this.#page.perform(async () => {
      let found;
      // A page of a large job may have none that matches the filter.
      do {
        const cursor = this.#cursor;
        found = await this.#load(cursor);
        // Another click, or another filter, has replaced the list meanwhile.
        if (!found || cursor !== this.#cursor) return;
        const count = this.#rows.length;
        this.#older = [...this.#older, ...found.notifications];
        this.#cursor = found.next_cursor;
        this.#show();
        if (this.#more.hidden) this.#list.querySelectorAll("tbody a")[count]?.focus();
      } while (this.#cursor && !found.notifications.length && this.element.isConnected);
    });
  }

  #filter() {
    history.pushState(null, "", this.address);
    this.#first = { notifications: [], next_cursor: null };
    this.#older = [];
    this.#cursor = null;
    this.#page.refresh();
  }

  #show() {
    this.#more.hidden = !this.#cursor;
    const rows = this.#rows;
    const count = rows.length;
    const text = count ? (this.#cursor ? `${number(count)} shown.` : `All ${number(count)} shown.`) : "";
    if (this.#count.textContent !== text) this.#count.textContent = text;
    const { user } = this.#source;
    const columns = ["Time", user === undefined ? "User" : "Type", "Title", "What became of it", "Seen", "Notification"];
    const none = !Object.keys(this.#filters.values).length ? "No notifications."
      : this.#cursor ? "No notification so far matches the filters." : "No notification matches the filters.";
    fill(this.#list, [rows, none], () => table("Notifications", columns, rows.map((row) => [
      dateTime(row.created_at), user === undefined ? personLink(row.user_id) : readable(row.type),
      h("bdi", { class: "title" }, unmarked(row.title) || "–"),
      [pill(row.status, statusKinds[row.status]), " ", h("span", { class: "outcome" }, outcomeWords(row))],
      seen(row), this.#actions(row),
    ]), none));
  }

  #actions(row) {
    const user = this.#source.user ?? row.user_id;
    const title = row.title || row.id;
    // Reuse a notification's button, so that a redraw keeps its answer.
    if (!this.#resends.has(row.id)) {
      this.#resends.set(row.id, new Resend(this.#page, { id: row.id, user, title, org: row.org_id ?? this.#source.org }));
    }
    const job = this.#source.job || !row.job_id ? null
      : h("a", { href: jobAddress(row.job_id, row.org_id), "aria-label": `Job: ${row.job_id}` }, "Job");
    const { button, answer } = this.#resends.get(row.id);
    return [h("div", { class: "actions" }, traceLink(row.id, user, title), job, button), answer];
  }
}

const typeOption = (type) => h("option", { value: type }, type ? readable(type) : "Any type");

function seen(row) {
  const moments = [["opened", row.opened_at], ["read", row.read_at], ["archived", row.archived_at], ["deleted", row.deleted_at]];
  const known = moments.filter(([, moment]) => moment);
  return known.length ? known.map(([what, moment]) => h("div", { class: "seen" }, `${what} `, when(moment)))
    : h("span", { class: "nothing" }, "–");
}
