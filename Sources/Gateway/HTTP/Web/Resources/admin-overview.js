// Carillon · admin-overview.js
// SPDX-License-Identifier: Apache-2.0

import { chart } from "./admin-charts.js";
import {
  countNote, countTiles, latencyTable, none, organisationTable, processesOf, processTable, tile, waitingTiles,
} from "./admin-figures.js";
import { address, Field, segments } from "./admin-forms.js";
import { bannerOf, deliveriesIn, isJobs, isLate, oldestIn, outages, streamsOf } from "./admin-outages.js";
import { card, dateTime, fill, number, pill, span, table, until } from "./admin-parts.js";
import { channelIDs, channelName } from "./admin-words.js";
import { h } from "./dom.js";

const spans = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]];

/** The overview, `#overview?span=…&org=…`: faults, counts, processes, providers, streams. */
export function overview(page, _, query) {
  const chosen = {
    span: spans.some(([span]) => span === query.get("span")) ? query.get("span") : "1h",
    org: query.get("org") ?? "",
  };
  const place = () => h("div");
  const [latencies, organisations, processes, streams, providers] = Array.from({ length: 5 }, place);
  const charts = h("div", { class: "charts" });
  const note = h("div", { class: "overview-note" });
  const tiles = h("div", { class: "tiles" });
  const nowTiles = h("div", { class: "tiles" });
  const banners = h("div", { class: "outages" });
  const said = h("p", { class: "spoken", role: "status" });
  const fault = h("p", { class: "fault", role: "alert" });
  const form = new ChoiceForm(chosen, choose);
  const element = h("div", { class: "view overview" }, said, banners, form.element, fault, tiles, note,
    h("div", { class: "columns overview-shares" }, card("Latency", latencies), card("Organisations", organisations)),
    h("h2", { class: "part" }, "Now, all organisations"), nowTiles, card("The last hour", charts),
    card("Processes", processes), card("Providers", providers), card("Streams", streams));

  /** The query of the gateway, whose default is an hour of all organisations. */
  const asked = () => new URLSearchParams({ span: chosen.span, ...(chosen.org ? { org: chosen.org } : {}) }).toString();
  const hrefOf = ({ span, org }) => address("overview", { span: span === "1h" ? "" : span, org });

  function choose(change) {
    Object.assign(chosen, change);
    form.show(chosen);
    history.pushState(null, "", hrefOf(chosen));
    fault.textContent = "";
    page.refresh();
  }

  async function update() {
    const question = asked();
    const sources = {
      counts: read(page, `/v1/admin/overview?${question}`), survey: read(page, "/v1/admin/nodes"),
      waiting: read(page, "/v1/admin/streams"), statistics: read(page, "/v1/admin/statistics"),
      known: read(page, "/v1/admin/providers"),
    };
    const answers = Object.fromEntries(await Promise.all(
      Object.entries(sources).map(async ([name, answer]) => [name, await answer])));
    // The user has chosen something else meanwhile.
    if (question !== asked() || !element.isConnected) return;
    show(answers);
  }

  function show({ counts, survey, waiting, statistics, known }) {
    const isInput = [400, 422].includes(counts.error?.status);
    fault.textContent = isInput ? page.explain(counts.error) : "";
    const names = [[isInput ? {} : counts, "the counts"], [survey, "which processes run"], [waiting, "how long the streams are"],
      [statistics, "the last hour"], [known, "the state of providers"]];
    const all = processesOf(survey.value);
    const found = outages({
      counts: counts.value, processes: all, streams: waiting.value?.streams, providers: known.value?.providers,
      dispatchers: known.value?.dispatchers, statistics: statistics.value, errors: names.filter(([answer]) => answer.error).map(([answer, name]) => [name, answer.error]),
    });
    fill(banners, [found, counts.value, waiting.value, known.value], () => found.map(bannerOf));
    const titles = found.map(({ title }) => title).join(" ");
    // Screen readers would repeat a text that is set again.
    if (said.textContent !== titles) said.textContent = titles;
    fill(tiles, counts, () => countTiles(counts.value));
    fill(note, counts, () => countNote(counts.value) ?? []);
    fill(latencies, counts, () => latencyTable(counts.value));
    fill(organisations, [counts, chosen], () =>
      organisationTable(counts.value, chosen.org, (org) => hrefOf({ ...chosen, org }), (org) => choose({ org })));
    form.offer(counts.value?.organisations ?? []);
    const { since, complete, channels } = statistics.value ?? {};
    fill(nowTiles, [counts, survey, waiting, since, complete, channels], () => [
      ...waitingTiles(counts.value), ...stateTiles(survey.value, waiting.value, statistics.value),
    ]);
    fill(processes, [all, Math.floor(Date.now() / 30_000)], () => processTable(all));
    fill(streams, waiting, () => streamTable(waiting.value, statistics.value));
    fill(providers, [known, waiting], () => providerTable(known.value, waiting.value?.streams));
    fill(charts, [since, complete, channels], () => chartRow(statistics.value));
  }

  return { element, update, get every() { return chosen.span === "1h" ? 5_000 : 15_000; } };
}

/** Reads from the gateway: the value, or the error if it refuses. */
async function read(page, path) {
  try {
    return { value: await page.call("GET", path) };
  } catch (error) {
    if (error.kind !== "refused" || error.status === 403) throw error;
    return { value: null, error: { message: error.message, status: error.status, faults: error.faults } };
  }
}

/** The choice of span and organisation. */
class ChoiceForm {
  #org;
  #known = h("datalist", { id: "organisations" });
  #radios;
  #all;

  constructor(chosen, choose) {
    this.#org = new Field("Organisation", h("input", {
      name: "org", type: "search", maxlength: 128, list: "organisations", autocomplete: "off", autocapitalize: "off",
      spellcheck: "false", placeholder: "All",
    }));
    this.#all = h("button", { type: "button", class: "plain", onclick: () => {
      choose({ org: "" });
      this.#org.input.focus();
    } }, "All organisations");
    const radios = segments("Counts of the last", "span", spans, chosen.span, (span) => choose({ span }));
    this.#radios = [...radios.querySelectorAll("input")];
    this.element = h("form", { class: "filters-form overview-form" }, radios, this.#org.element, this.#known,
      h("button", { type: "submit", class: "plain" }, "Filter"), this.#all);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      choose({ org: this.#org.value });
    });
    this.show(chosen);
  }

  show({ span, org }) {
    this.#org.value = org;
    this.#all.hidden = !org;
    for (const radio of this.#radios) radio.checked = radio.value === span;
  }

  /** Offers the largest organisations. */
  offer(organisations) {
    const names = organisations.map(({ org_id: org }) => org).filter(Boolean);
    fill(this.#known, names, () => names.map((name) => h("option", { value: name })));
  }
}

/** The tiles of what waits now; whatever could not be read is null. */
function stateTiles(survey, waiting, statistics) {
  const sumOf = (list, value) => (list ? list.reduce((total, one) => total + (value(one) ?? 0), 0) : null);
  const lagging = sumOf(waiting?.streams, (stream) => (isJobs(stream) ? stream.lag : 0));
  const oldest = waiting ? oldestIn(waiting.streams) : null;
  const isBehind = (waiting?.streams ?? []).some((stream) => isLate(stream, waiting.streams, statistics));
  const counts = (statistics?.channels ?? []).flatMap(({ outcomes }) => outcomes);
  const sent = sumOf(counts.filter(({ outcome }) => ["accepted", "delivered"].includes(outcome)).flatMap((one) => one.counts), Number);
  const isCounted = survey?.gateways.some((node) => node.connections != null);
  return [
    isCounted ? tile("connections", number(sumOf(survey.gateways, (node) => node.connections))) : null,
    tile("jobs waiting", number(lagging), { kind: lagging > 10_000 ? "warn" : "" }),
    tile("deliveries waiting", number(deliveriesIn(waiting?.streams)), { kind: isBehind ? "warn" : "" }),
    tile("oldest waiting", span(oldest), { kind: isBehind ? "warn" : "" }),
    statistics ? sentTile(number(sent), statistics) : null,
  ].filter(Boolean);
}

function sentTile(sent, { since, complete }) {
  return complete ? tile("sent, last hour", sent) : tile("sent", sent, { key: "sent", note: ["since ", dateTime(since)] });
}

function streamTable(waiting, statistics) {
  if (!waiting) return none();
  const columns = ["Stream", "#Length", "#Not read yet", "#In flight", "#Retries and held back", "#Oldest waiting"];
  return table("Streams", columns, waiting.streams.map((stream) => [
    h("code", null, stream.name), number(stream.length), number(stream.lag), number(stream.pending),
    isJobs(stream) ? "–" : number(stream.retries),
    isLate(stream, waiting.streams, statistics) ? h("span", { class: "bad" }, span(stream.waited_seconds))
      : span(stream.waited_seconds),
  ]), "No streams yet.");
}

/** A breaker's states, best first. */
const breakers = { closed: "good", probing: "warn", open: "bad" };

/** A row for each provider and app, with the worst of its dispatchers' breakers. */
function providerTable(known, streams) {
  if (!known) return none();
  const rank = Object.keys(breakers);
  const rows = (known.providers ?? []).flatMap((provider) => [...Map.groupBy(provider.ways, (way) => way.app)].map(([app, ways]) => {
    const worst = rank[Math.max(...ways.map((way) => rank.indexOf(way.breaker)))];
    const those = ways.filter((way) => way.breaker === worst);
    const next = those.map((way) => way.open_until).filter(Boolean).sort()[0];
    const part = those.length < ways.length ? h("div", { class: "hint" }, `on ${number(those.length)} of ${number(ways.length)}`) : null;
    return [
      channelName(provider.provider), app, [pill(worst, breakers[worst]), part].filter(Boolean), next ? until(next) : "",
      number(ways.length), number(ways.reduce((sum, way) => sum + way.in_flight, 0)),
      number(deliveriesIn(streamsOf(provider.provider, streams))),
    ];
  }));
  const columns = ["Provider", "App", "Breaker", "Open until", "#Dispatchers", "#In flight", "#Waiting"];
  return table("Providers", columns, rows, "No provider is configured.");
}

function chartRow(statistics) {
  if (!statistics) return none();
  const rank = ({ channel }) => (channelIDs.includes(channel) ? channelIDs.indexOf(channel) : channelIDs.length);
  const shown = statistics.channels.filter(({ outcomes }) => outcomes.length)
    .sort((one, other) => rank(one) - rank(other));
  const note = statistics.complete ? null
    : h("p", { class: "hint" }, "Too much data to count; the oldest minutes are missing.");
  if (!shown.length) return note ?? h("p", { class: "hint empty" }, "Nothing went out in the last hour.");
  const begin = Date.parse(statistics.since);
  const charts = shown.map(({ channel, outcomes }) => chart({ title: channelName(channel), outcomes }, begin));
  return [...charts, note].filter(Boolean);
}
