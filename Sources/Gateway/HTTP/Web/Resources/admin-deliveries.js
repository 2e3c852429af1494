// Carillon · admin-deliveries.js
// SPDX-License-Identifier: Apache-2.0

import { countNote } from "./admin-figures.js";
import { Filters, textFilter } from "./admin-filters.js";
import { address, Field, select } from "./admin-forms.js";
import { bar, card, fill, firstPages, number, orFault, personLink, pill, table, when } from "./admin-parts.js";
import { channelIDs, channelName } from "./admin-words.js";
import { h, readable } from "./dom.js";

const pageSize = 50;
const mostPages = 10;

/** The view of deliveries, `#deliveries?reason=…`: outcomes, recent failures, client reports. */
export function deliveries(page, _, query) {
  const failures = new FailureList(page, query);
  const types = h("div");
  const reports = h("div");
  const element = h("div", { class: "view" }, card("Outcomes by type, last 24 hours", types),
    failures.element, card("Reports from browsers and phones", reports));

  async function count() {
    const [statistics, reported] = await Promise.all([
      page.call("GET", "/v1/admin/statistics"), page.call("GET", "/v1/admin/client-reports"),
    ]);
    const { types: rows, types_since: start } = statistics;
    fill(types, [rows, start], () => [start ? countNote({ since: start }) : null, rates(rows)].filter(Boolean));
    fill(reports, reported, () => reportTables(reported));
  }
  // A search may take long; the counts do not wait for it.
  return { element, update: () => Promise.all([count(), failures.update()]), every: 15_000 };
}

function rates(rows) {
  const share = (row, part, kind) => bar(row[part], row.stored, kind);
  const columns = ["Type", "#Stored", "#No device", "Accepted by a provider", "Delivered", "Opened", "Read", "#Failed"];
  return table("Types", columns, rows.map((row) => [
    readable(row.type), number(row.stored), number(row.no_device), share(row, "accepted", "good"), share(row, "delivered", "good"),
    share(row, "opened"), share(row, "read"), row.failed ? h("span", { class: "bad" }, number(row.failed)) : number(row.failed),
  ]), "No notifications.");
}

const providers = channelIDs.filter((id) => !["in_app", "push"].includes(id)).map((id) => [id, channelName(id)]);

/** The failures that match the filters, newest first. */
class FailureList {
  #page;
  #filters;
  #pages = 1;
  #fault = h("p", { class: "fault", role: "alert" });
  #list = h("div", { class: "failures" });
  #more = h("button", { type: "button", class: "plain more", hidden: true, onclick: () => this.#loadMore() }, "Show older");
  #rest = h("p", { class: "hint", hidden: true });

  constructor(page, query) {
    this.#page = page;
    this.#filters = new Filters(query, [
      textFilter("reason", "Reason begins with", 1024),
      new Field("Provider", select("provider", [["", "Any provider"], ...providers])),
    ], () => this.#filter());
    this.element = card("Recent failures", this.#filters.element, this.#fault, this.#list,
      h("div", { class: "row" }, this.#more, this.#rest));
  }

  async update() {
    const asked = this.#filters.values;
    const found = await orFault(this.#page, this.#fault, () =>
      firstPages(this.#page, "/v1/admin/failures", "failures", { ...asked, limit: pageSize }, this.#pages));
    // The user has chosen another filter meanwhile.
    if (asked !== this.#filters.values) return;
    const { items = [], cursor } = found ?? {};
    this.#more.hidden = !cursor || this.#pages >= mostPages;
    this.#rest.hidden = !cursor || this.#pages < mostPages;
    this.#rest.textContent = `The newest ${items.length}. Filter to see others.`;
    const none = Object.keys(asked).length === 0 ? "No failures in the last 24 hours."
      : cursor ? "None of the newest failures matches the filters." : "No failure matches the filters.";
    fill(this.#list, [found, asked], () => (found ? failureTable(items, none) : []));
  }

  async #loadMore() {
    const links = this.#links.length;
    this.#pages += 1;
    await this.#page.refresh();
    if (this.#more.hidden) this.#links[links]?.focus();
  }

  get #links() { return this.#list.querySelectorAll("tbody a"); }

  #filter() {
    this.#pages = 1;
    const goal = address("deliveries", this.#filters.values);
    if (location.hash !== goal) history.pushState(null, "", goal);
    this.#page.refresh();
  }
}

function failureTable(failures, none) {
  return table("Recent failures", ["When", "Provider", "Reason", "User", "#Attempt", "Notification"], failures.map((failure) => [
    when(failure.at), channelName(failure.provider), h("span", { class: "reason" }, failure.reason ?? "–"), personLink(failure.user_id),
    number(failure.attempt), failure.notification_id
      ? h("a", { href: `#trace/${failure.notification_id}/${encodeURIComponent(failure.user_id)}` }, "Trace") : "–",
  ]), none);
}

function reportTables(reported) {
  const kinds = { granted: "good", denied: "bad", failed: "bad", dismissed: "warn" };
  return [
    table("Reports of the last 24 hours", ["Kind", "Provider", "Outcome", "#Reports"], reported.counts.map((row) => [
      row.kind === "permission" ? "Permission prompt" : "Device registration", channelName(row.provider),
      pill(row.outcome, kinds[row.outcome]), number(row.count),
    ]), "No reports in the last 24 hours."),
    reported.failed.length ? h("h3", null, "Newest failed registrations") : null,
    reported.failed.length ? table("Failed registrations", ["When", "Provider", "User", "Reason"], reported.failed.map((row) => [
      when(row.at), channelName(row.provider), personLink(row.user_id), row.reason ?? "–",
    ])) : null,
  ].filter(Boolean);
}
