// Carillon · admin-jobs.js
// SPDX-License-Identifier: Apache-2.0

import { Filters, momentFilter, statusFilter, textFilter } from "./admin-filters.js";
import { address } from "./admin-forms.js";
import { Job } from "./admin-job.js";
import { card, dateTime, fill, jobAddress, jobLink, number, orFault, pill, table } from "./admin-parts.js";
import { statusKinds } from "./admin-words.js";
import { h, readable } from "./dom.js";
import { unmarked } from "./marks.js";

const pageSize = 25;
const columns = ["Newest", "Title", "#Notifications", "By status", "Job"];

/** The view of jobs: `#jobs?type=…` lists the recent ones, `#jobs/ID?org=…` shows one. */
export function jobs(page, [id = ""], query) {
  const shown = id ? new Job(page, id, query) : new JobList(page, query);
  const find = finder(page, id, id ? query.get("org") ?? "" : "");
  return {
    element: h("div", { class: "view" }, find, shown.element),
    update: () => shown.update(),
    get every() { return shown.every; },
  };
}

/** A form that opens a job by its id or entry. */
function finder(page, id, org) {
  const idField = h("input", {
    name: "id", type: "search", required: true, maxlength: 128, value: id, spellcheck: "false", autocomplete: "off",
    autocapitalize: "off",
  });
  const orgField = h("input", { name: "org", maxlength: 128, value: org, spellcheck: "false", autocomplete: "off" });
  const form = h("form", { class: "filters-form job-search", role: "search" },
    h("label", { class: "field" }, h("span", null, "Job id or entry"), idField),
    h("label", { class: "field" }, h("span", null, "Its organisation (optional)"), orgField),
    h("button", { type: "submit", class: "primary" }, "Find"),
    id ? h("a", { class: "plain", href: "#jobs" }, "Recent jobs") : null);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!idField.value.trim()) return;
    const goal = jobAddress(idField.value.trim(), orgField.value.trim());
    if (location.hash === goal) page.refresh();
    else location.hash = goal;
  });
  return card("Find a job", form);
}

/** The recent jobs, newest first. */
class JobList {
  #page;
  #filters;
  /** The answers so far. The notifications of a job may lie on several of them. */
  #pages = [];
  #hasTypes = false;
  #list = h("div", { class: "jobs" });
  #fault = h("p", { class: "fault", role: "alert" });
  #reached = h("p", { class: "hint", role: "status" });
  #more = h("button", { type: "button", class: "plain more", hidden: true, onclick: () => this.#loadMore() });
  #newest = h("button", { type: "button", class: "plain newest", hidden: true, onclick: () => this.#restart() }, "Back to the newest");

  constructor(page, query) {
    this.#page = page;
    this.#filters = new Filters(query, [
      textFilter("type", "Type"), statusFilter(), textFilter("org", "Organisation"),
      momentFilter("since", "Stored since"), momentFilter("until", "Stored before"),
    ], () => this.#filter());
    this.element = card("Recent jobs", this.#filters.element, this.#fault, this.#list,
      h("div", { class: "row jobs-end" }, this.#more, this.#newest, this.#reached));
  }

  /** Older pages follow the first one as it was, so it is not loaded again while they are shown. */
  get every() { return this.#pages.length > 1 ? null : 10_000; }

  async update() {
    if (!this.#hasTypes) this.#offerTypes();
    if (this.#pages.length > 1) return;
    const asked = this.#key;
    const first = await orFault(this.#page, this.#fault, () => this.#load(null));
    if (asked !== this.#key || this.#pages.length > 1) return;
    this.#pages = first ? [first] : [];
    this.#show();
  }

  get #key() { return JSON.stringify(this.#filters.values); }

  async #offerTypes() {
    this.#hasTypes = true;
    try {
      const { types } = await this.#page.call("GET", "/v1/admin/catalog");
      this.#filters.offer("type", types.map(({ name }) => name).sort());
    } catch {
      // The types are only suggestions, so a failure needs no message.
      this.#hasTypes = false;
    }
  }

  #load(cursor) {
    const query = new URLSearchParams({ ...this.#filters.values, limit: pageSize, ...(cursor ? { cursor } : {}) });
    return this.#page.call("GET", `/v1/admin/jobs?${query}`);
  }

  async #loadMore() {
    const before = this.#pages;
    await this.#page.perform(() => orFault(this.#page, this.#fault, async () => {
      const next = await this.#load(before.at(-1).next_cursor);
      // Another click, or another filter, has replaced the list meanwhile.
      if (before !== this.#pages) return;
      const links = this.#links.length;
      this.#pages = [...before, next];
      this.#show();
      if (this.#more.hidden) (this.#links[links] ?? this.#newest).focus();
    }));
  }

  get #links() { return this.#list.querySelectorAll("tbody a"); }

  #filter() {
    const goal = address("jobs", this.#filters.values);
    if (location.hash !== goal) history.pushState(null, "", goal);
    this.#restart();
  }

  #restart() {
    this.#pages = [];
    this.#page.refresh();
  }

  #show() {
    const last = this.#pages.at(-1);
    const found = merge(this.#pages.flatMap(({ jobs }) => jobs));
    fill(this.#list, [found, this.#key, !last], () => !last ? [] : table("Jobs", columns, found.map(row),
      this.#key === "{}" ? "No job so far." : "No job matches the filters."));
    set(this.#more, !last?.next_cursor, last?.jobs.length < pageSize ? "Look further back" : "Load more");
    set(this.#newest, this.#pages.length < 2, "Back to the newest");
    const reached = !last ? [] : last.next_cursor && last.reached ? ["Looked back to ", dateTime(last.reached), "."]
      : ["Looked at everything that is stored."];
    fill(this.#reached, [last?.next_cursor ? last.reached : null, !last], () => reached);
  }
}

function set(button, isHidden, text) {
  button.hidden = isHidden;
  if (button.textContent !== text) button.textContent = text;
}

/** Joins the parts of each job, in the order of its newest notification. */
function merge(parts) {
  const known = new Map();
  for (const part of parts) {
    const key = JSON.stringify([part.org_id, part.job_id ?? part.entry]);
    const one = known.get(key);
    if (!one) {
      known.set(key, part);
      continue;
    }
    const counts = new Map(one.statuses.map(({ status, count }) => [status, count]));
    for (const { status, count } of part.statuses) counts.set(status, (counts.get(status) ?? 0) + count);
    known.set(key, {
      ...one, notifications: one.notifications + part.notifications, oldest_at: part.oldest_at,
      statuses: [...counts].map(([status, count]) => ({ status, count })),
    });
  }
  return [...known.values()];
}

function row(job) {
  const about = [readable(job.type), `lane ${job.lane}`, job.org_id].filter(Boolean).join(" · ");
  return [
    dateTime(job.newest_at), [h("bdi", { class: "title" }, unmarked(job.title ?? "") || "–"), h("div", { class: "hint" }, about)],
    number(job.notifications),
    h("div", { class: "pills" }, job.statuses.map(({ status, count }) =>
      pill(`${number(count)} ${readable(status).toLowerCase()}`, statusKinds[status]))),
    jobLink(job.job_id ?? job.entry, job.org_id),
  ];
}
