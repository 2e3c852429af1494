// Carillon · admin-overview.js
// SPDX-License-Identifier: Apache-2.0

import { chart } from "./admin-charts.js";
import { card, fill, number, pill, span, table, until } from "./admin-parts.js";
import { channelNames } from "./admin-words.js";
import { h } from "./dom.js";

const isJobs = ({ name }) => !name.includes("{");

/** The overview: nodes, streams, providers, and the last hour. */
export function overview(page) {
  const charts = h("div", { class: "charts" });
  const nodes = h("div");
  const streams = h("div");
  const providers = h("div");
  const tiles = h("div", { class: "tiles" });
  const outages = h("div", { class: "outages", role: "status" });
  const element = h("div", { class: "view" }, outages, tiles, card("The last hour", charts),
    h("div", { class: "columns" }, card("Nodes", nodes), card("Providers", providers)), card("Streams", streams));

  async function update() {
    const [survey, waiting, statistics, known] = await Promise.all([
      page.call("GET", "/v1/admin/nodes"), page.call("GET", "/v1/admin/streams"),
      page.callIfThere("/v1/admin/statistics"), page.callIfThere("/v1/admin/providers"),
    ]);
    fill(outages, known, () => outageBanners(known?.providers ?? []));
    fill(tiles, [survey, waiting, known, statistics?.channels], () =>
      tileRow(survey, waiting.streams, known?.providers ?? [], statistics));
    fill(nodes, survey, () => nodeTable(survey));
    fill(streams, waiting, () => streamTable(waiting.streams));
    fill(providers, known, () => providerTable(known));
    fill(charts, [statistics?.since, statistics?.channels], () => chartRow(statistics));
  }
  return { element, update, every: 5_000 };
}

function tile(label, value, kind = "") {
  return h("div", { class: `tile ${kind}` }, h("span", { class: "tile-value" }, value), h("span", { class: "tile-label" }, label));
}

/** Counts a provider's deliveries that wait: in its streams, for a retry, or held back. */
const deliveriesOf = (provider) => provider.waiting + provider.retries;

/**
 * A banner for each provider and app whose circuit breaker is open or probing on some dispatcher.
 */
function outageBanners(providers) {
  return providers.flatMap((provider) => {
    const out = provider.ways.filter((way) => way.breaker !== "closed");
    return [...new Set(out.map((way) => way.app))].map((app) => {
      const ways = out.filter((way) => way.app === app);
      const next = ways.map((way) => way.open_until).filter(Boolean).sort()[0];
      const count = deliveriesOf(provider);
      return h("p", { class: "banner", "data-provider": provider.provider },
        h("strong", null, `${channelNames[provider.provider] ?? provider.provider} is unavailable for app ${app}.`), " ",
        count ? `${number(count)} ${count === 1 ? "delivery waits" : "deliveries wait"}, the oldest for ${span(provider.oldest_waiting_seconds)}. `
          : "Nothing is waiting. ",
        next ? ["Next attempt ", until(next), ". "] : "Test calls are checking whether it is back. ",
        h("a", { href: "#deliveries" }, "Show failures"));
    });
  });
}

function tileRow(survey, streams, providers, statistics) {
  const jobs = streams.reduce((sum, stream) => sum + (isJobs(stream) ? (stream.lag ?? 0) : 0), 0);
  const deliveries = providers.reduce((sum, provider) => sum + deliveriesOf(provider), 0);
  const oldest = Math.max(0, ...streams.map((stream) => stream.oldest_waiting_seconds ?? 0));
  const isLate = streams.some((stream) => !stream.name.endsWith(":bulk") && stream.oldest_waiting_seconds > 120);
  const counts = (statistics?.channels ?? []).flatMap(({ outcomes }) => outcomes);
  const sum = (...wanted) => counts.filter(({ outcome }) => wanted.includes(outcome))
    .flatMap(({ counts }) => counts).reduce((total, value) => total + value, 0);
  const alive = [...survey.gateways, ...survey.dispatchers].filter((node) => node.alive).length;
  const connections = survey.gateways.reduce((total, node) => total + (node.connections ?? 0), 0);
  const isCounted = survey.gateways.some((node) => node.connections != null);
  return [
    tile("nodes alive", number(alive)),
    isCounted ? tile("connections", number(connections)) : null,
    tile("jobs waiting", number(jobs), jobs > 10_000 ? "warn" : ""),
    tile("deliveries waiting", number(deliveries), isLate ? "warn" : ""),
    tile("oldest waiting", span(oldest), isLate ? "warn" : ""),
    statistics ? tile("sent, last hour", number(sum("accepted", "delivered"))) : null,
    statistics ? tile("failed, last hour", number(sum("failed")), sum("failed") ? "bad" : "") : null,
  ].filter(Boolean);
}

function nodeTable({ gateways, dispatchers }) {
  const state = (isAlive) => pill(isAlive ? "alive" : "gone", isAlive ? "good" : "bad");
  const rows = [
    ...gateways.map((node) => ["gateway", h("code", null, node.id), state(node.alive),
      node.connections == null ? "–" : `${number(node.connections)} connections`]),
    ...dispatchers.map((node) => ["dispatcher", h("code", null, node.name), state(node.alive), `${number(node.pending)} jobs in flight`]),
  ];
  return table("Nodes", ["Program", "Name", "State", "Load"], rows, "No nodes.");
}

function streamTable(streams) {
  const columns = ["Stream", "#Length", "#Not read yet", "#In flight", "#Retries and held back", "#Oldest waiting"];
  return table("Streams", columns, streams.map((stream) => [
    h("code", null, stream.name), number(stream.length), number(stream.lag), number(stream.pending),
    isJobs(stream) ? "–" : number(stream.retries), span(stream.oldest_waiting_seconds),
  ]), "No streams yet.");
}

function providerTable(known) {
  if (!known) return h("p", { class: "hint empty" }, "Not available from this gateway.");
  const kinds = { closed: "good", probing: "warn", open: "bad" };
  const rows = (known.providers ?? []).flatMap((provider) => provider.ways.map((way) => [
    channelNames[provider.provider] ?? provider.provider, way.app,
    pill(way.breaker, kinds[way.breaker] ?? "warn"), way.open_until ? until(way.open_until) : "",
    number(way.in_flight), number(deliveriesOf(provider)),
  ]));
  return table("Providers", ["Provider", "App", "Breaker", "Open until", "#In flight", "#Waiting"], rows, "No provider is configured.");
}

function chartRow(statistics) {
  if (!statistics) return h("p", { class: "hint empty" }, "Not available from this gateway.");
  const names = Object.keys(channelNames);
  const place = ({ channel }) => (names.includes(channel) ? names.indexOf(channel) : names.length);
  const shown = statistics.channels.filter(({ outcomes }) => outcomes.length)
    .sort((one, other) => place(one) - place(other));
  if (!shown.length) return h("p", { class: "hint empty" }, "Nothing went out in the last hour.");
  const note = statistics.complete ? null
    : h("p", { class: "hint" }, "Too much data to count; the oldest minutes are missing.");
  const begin = Date.parse(statistics.since);
  const charts = shown.map(({ channel, outcomes }) => chart({ title: channelNames[channel] ?? channel, outcomes }, begin));
  return [...charts, note].filter(Boolean);
}
