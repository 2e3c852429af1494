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
  #rows = [];
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
    return this.#page.callIfThere(`${this.#source.path}?${query}`);
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
    const { user } = this.#source;
    const columns = ["Time", user === undefined ? "User" : "Type", "Title", "What became of it", "Seen", "Notification"];
    fill(this.#list, this.#rows, () => table("Notifications", columns, this.#rows.map((row) => [
      dateTime(row.created_at), user === undefined ? personLink(row.user_id) : readable(row.type),
      h("bdi", { class: "title" }, unmarked(row.title) || "–"),
      [pill(row.status, statusKinds[row.status]), " ", h("span", { class: "outcome" }, outcomeWords(row))],
      seen(row), this.#actions(row),
    ]), Object.keys(this.#filters.values).length ? "No notification matches the filters." : "No notifications."));
  }

  #actions(row) {
    const user = this.#source.user ?? row.user_id;
    const title = row.title || row.id;
    // A new row of the table keeps the answer of an earlier one.
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
