// Carillon · admin-figures.js
// SPDX-License-Identifier: Apache-2.0

import { bar, dateTime, number, pill, share, span, table } from "./admin-parts.js";
import { commonVersion } from "./admin-outages.js";
import { h } from "./dom.js";

/** Stands for figures that could not be read; the view says why above. */
export const none = () => h("p", { class: "hint empty" }, "Could not be read.");

/** A number with its name; `kind` colours it, `href` makes it a link, `note` says more. */
export function tile(label, value, { kind = "", href = null, key = null, note = null } = {}) {
  return h(href ? "a" : "div", { class: `tile ${kind}`, href, "data-tile": key },
    h("span", { class: "tile-value" }, value), h("span", { class: "tile-label" }, label),
    note ? h("span", { class: "tile-note" }, note) : null);
}

/** The tiles of the chosen span; the counts may be null. */
export function countTiles(counts) {
  const { stored, delivered, opened, failed } = counts ?? {};
  const part = (value) => (counts && stored ? `${number(value)} of ${number(stored)}` : null);
  return [
    tile("stored", number(stored), { key: "stored" }),
    tile("delivered", counts ? share(delivered, stored) : "–", { key: "delivered", note: part(delivered) }),
    tile("opened", counts ? share(opened, stored) : "–", { key: "opened", note: part(opened) }),
    tile("failed", number(failed), { key: "failed", kind: failed ? "bad" : "" }),
  ];
}

/** The tiles of work that waits now, of all organisations; the counts may be null. */
export function waitingTiles(counts) {
  const { held, late, dead_letters: dead } = counts ?? {};
  return [
    tile("held", number(held), { key: "held", note: "quiet hours, idle users, e-mail" }),
    tile("late", number(late), { key: "late", kind: late ? "bad" : "" }),
    tile("dead letters", number(dead), { key: "dead-letters", kind: dead ? "warn" : "", href: "#dead-letters" }),
  ];
}

/** Says since when the counts are, if there were too many to count all. */
export function countNote(counts) {
  if (!counts || counts.complete) return null;
  return h("p", { class: "hint", "data-note": "incomplete" }, "Counted from the newest 200,000 notifications, since ", dateTime(counts.since), ".");
}

/** How long it took from the job to its proof. */
export function latencyTable(counts) {
  if (!counts) return none();
  const ways = [["Job to frame", "socket"], ["Job to push", "push"], ["Job to e-mail", "email"]];
  return [
    table("Latency", ["Way", "#Median", "#95 %", "#99 %", "#Count"], ways.map(([name, key]) => {
      const found = counts.latency?.[key];
      return [name, ...[found?.p50, found?.p95, found?.p99].map(duration), number(found?.count)];
    })),
    h("p", { class: "hint" }, "From the job to a socket's proof, or to the acceptance by the provider or mail relay. Broadcasts are left out, as they may wait for their confirmation. Pushes and mails: the newest 20,000."),
  ];
}

/** Formats milliseconds: `20 ms`, `1.2 s`, `3 min`. */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1_000) return `${number(Math.round(milliseconds))} ms`;
  return milliseconds < 10_000 ? `${(milliseconds / 1_000).toFixed(1)} s` : span(milliseconds / 1_000);
}

/**
 * The organisations with their share, largest first.
 *
 * @param hrefOf returns the URL of the view for an organisation.
 * @param choose filters by an organisation.
 */
export function organisationTable(counts, chosen, hrefOf, choose) {
  if (!counts) return none();
  const whole = counts.organisations.reduce((sum, { stored }) => sum + stored, 0);
  const link = (org) => h("a", {
    href: hrefOf(org), "data-org": org, "aria-current": org === chosen ? "true" : null,
    onclick: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      choose(org);
    },
  }, org);
  const rows = counts.organisations.map(({ org_id: org, stored }) => [
    org ? link(org) : h("span", { class: "hint" }, "without an organisation"), bar(stored, whole), number(stored),
  ]);
  return [
    table("Organisations", ["Organisation", "Share", "#Stored"], rows, "No notifications."),
    rows.length >= 20 ? h("p", { class: "hint" }, "The 20 largest. The shares are of these.") : null,
  ].filter(Boolean);
}

/** The gateways and dispatchers as processes, the living ones of each first; null if unknown. */
export function processesOf(survey) {
  if (!survey) return null;
  const order = (one, other) => Number(other.alive) - Number(one.alive) || one.name.localeCompare(other.name);
  return [
    ...survey.gateways.map((node) => ({ role: "gateway", name: node.id, ...node })).sort(order),
    ...survey.dispatchers.map((dispatcher) => ({ role: "dispatcher", ...dispatcher })).sort(order),
  ];
}

/** The processes with version, uptime and load. */
export function processTable(processes) {
  if (!processes) return none();
  const most = commonVersion(processes);
  const load = ({ connections, pending }) => [
    connections == null ? null : `${number(connections)} ${connections === 1 ? "connection" : "connections"}`,
    pending == null ? null : `${number(pending)} ${pending === 1 ? "job" : "jobs"} in flight`,
  ].filter(Boolean).join(", ") || "–";
  return table("Processes", ["Program", "Name", "State", "Version", "Up for", "Load"], processes.map((process) => [
    process.role, h("code", null, process.name), pill(process.alive ? "alive" : "gone", process.alive ? "good" : "bad"),
    process.alive && process.version && process.version !== most ? pill(process.version, "warn") : process.version ?? "–",
    process.alive && process.started_at ? span((Date.now() - Date.parse(process.started_at)) / 1_000) : "–", load(process),
  ]), "No processes.");
}
