// Carillon · admin-deliveries.js
// SPDX-License-Identifier: Apache-2.0

import { countNote } from "./admin-figures.js";
import { bar, card, fill, number, personLink, pill, table, when } from "./admin-parts.js";
import { channelName } from "./admin-words.js";
import { h, readable } from "./dom.js";

/** The view of deliveries: outcomes, recent failures, and client reports. */
export function deliveries(page) {
  const failures = h("div");
  const types = h("div");
  const reports = h("div");
  const element = h("div", { class: "view" }, card("Outcomes by type, last 24 hours", types),
    card("Recent failures", failures), card("Reports from browsers and phones", reports));

  async function update() {
    const [statistics, failed, reported] = await Promise.all([
      page.callIfThere("/v1/admin/statistics"), page.callIfThere("/v1/admin/failures?limit=50"),
      page.callIfThere("/v1/admin/client-reports"),
    ]);
    const start = statistics?.types_since;
    fill(types, [statistics?.types ?? null, start], () => [
      start ? countNote({ since: start }) : null,
      rates(statistics?.types),
    ].filter(Boolean));
    fill(failures, failed, () => failureTable(failed));
    fill(reports, reported, () => reportTables(reported));
  }
  return { element, update, every: 15_000 };
}

function rates(rows) {
  if (!rows) return h("p", { class: "hint empty" }, "Not available from this gateway.");
  const share = (row, part, kind) => bar(row[part], row.stored, kind);
  const columns = ["Type", "#Stored", "#No device", "Accepted by a provider", "Delivered", "Opened", "Read", "#Failed"];
  return table("Types", columns, rows.map((row) => [
    readable(row.type), number(row.stored), number(row.no_device), share(row, "accepted", "good"), share(row, "delivered", "good"),
    share(row, "opened"), share(row, "read"), row.failed ? h("span", { class: "bad" }, number(row.failed)) : number(row.failed),
  ]), "No notifications.");
}

function failureTable(failed) {
  if (!failed) return h("p", { class: "hint empty" }, "Not available from this gateway.");
  return table("Recent failures", ["When", "Provider", "Reason", "User", "#Attempt", "Notification"], failed.failures.map((failure) => [
    when(failure.at), channelName(failure.provider), h("span", { class: "reason" }, failure.reason ?? "–"), personLink(failure.user_id),
    number(failure.attempt), failure.notification_id
      ? h("a", { href: `#trace/${failure.notification_id}/${encodeURIComponent(failure.user_id)}` }, "Trace") : "–",
  ]), "No failures in the last 24 hours.");
}

function reportTables(reported) {
  if (!reported) return h("p", { class: "hint empty" }, "Not available from this gateway.");
  const kinds = { granted: "good", denied: "bad", failed: "bad", dismissed: "warn" };
  return [
    table("Reports of the last 24 hours", ["Kind", "Provider", "Outcome", "#Reports"], reported.counts.map((row) => [
      row.kind === "permission" ? "Permission prompt" : "Device registration", channelName(row.provider),
      pill(row.outcome, kinds[row.outcome]), number(row.count),
    ]), "No reports in the last 24 hours."),
    reported.failed.length ? h("h3", null, "Failed registrations") : null,
    reported.failed.length ? table("Failed registrations", ["When", "Provider", "User", "Reason"], reported.failed.map((row) => [
      when(row.at), channelName(row.provider), personLink(row.user_id), row.reason ?? "–",
    ])) : null,
  ].filter(Boolean);
}
