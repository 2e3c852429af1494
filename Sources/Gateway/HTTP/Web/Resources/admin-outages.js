// Carillon · admin-outages.js
// SPDX-License-Identifier: Apache-2.0

import { number, span, until } from "./admin-parts.js";
import { channelName } from "./admin-words.js";
import { h } from "./dom.js";

/** Whether a stream has jobs rather than a provider's deliveries. */
export const isJobs = ({ provider }) => !provider;

/** Counts the deliveries that wait in their streams or for a retry; null if unknown. */
export const deliveriesIn = (streams) => (streams
  ? streams.reduce((sum, stream) => sum + (isJobs(stream) ? 0 : stream.length + stream.retries), 0) : null);

/** The streams of a provider's deliveries; undefined if unknown. */
export const streamsOf = (name, streams) => streams?.filter(({ provider }) => provider === name);

/** How many seconds the oldest work of some streams has waited; 0 without work. */
export const oldestIn = (streams) => Math.max(0, ...streams.map((stream) => stream.waited_seconds ?? 0));

const count = (value, one, many) => `${number(value)} ${value === 1 ? one : many}`;

/**
 * Returns the faults that an operator must see. Each has a `key`, a `kind`, a `title`, and a `text`
 * of nodes. Answers that could not be read are null.
 */
export function outages({ counts, processes, streams, providers, dispatchers, statistics, errors }) {
  return [
    ...errors.map(([name, error]) => ({
      key: `unread-${name}`, kind: "bad", title: `The gateway cannot tell ${name}.`, text: [`${error.message}.`.replace(/\.\.$/, ".")],
    })),
    ...deadPrograms(processes),
    ...breakers(providers ?? [], streams),
    ...lateStreams(streams ?? [], providers ?? [], statistics),
    ...lateSteps(counts),
    ...deadLetters(counts),
    ...versions(processes ?? []),
    ...unequalDispatchers(dispatchers ?? [], providers ?? []),
  ];
}

/** A banner. */
export function bannerOf({ key, kind, title, text, provider }) {
  return h("p", { class: kind === "warn" ? "banner warn" : "banner", "data-outage": key, "data-provider": provider },
    h("strong", null, title), " ", text);
}

function deadPrograms(processes) {
  if (!processes) return [];
  const isGone = (role) => !processes.some((process) => process.role === role && process.alive);
  return [
    isGone("dispatcher") ? { key: "no-dispatcher", kind: "bad", title: "No dispatcher is running.",
      text: ["Jobs wait in their streams until you start one. Nothing is lost."] } : null,
    isGone("gateway") ? { key: "no-gateway", kind: "bad", title: "No gateway has a lease.",
      text: ["Dispatchers consider all users offline. Can the gateways reach Redis?"] } : null,
  ].filter(Boolean);
}

/** The providers and apps whose circuit breaker is open or probing on some dispatcher. */
function breakers(providers, streams) {
  return providers.flatMap((provider) => {
    const own = streamsOf(provider.provider, streams);
    const waiting = deliveriesIn(own);
    const out = provider.ways.filter((way) => way.breaker !== "closed");
    return [...new Set(out.map((way) => way.app))].map((app) => {
      const ways = out.filter((way) => way.app === app);
      const next = ways.map((way) => way.open_until).filter(Boolean).sort()[0];
      return {
        key: `breaker-${provider.provider}-${app}`, kind: "bad", provider: provider.provider,
        title: `${channelName(provider.provider)} is unavailable for app ${app}.`,
        text: [
          waiting ? `${count(waiting, "delivery waits", "deliveries wait")}, the oldest for ${span(oldestIn(own))}. `
            : waiting === 0 ? "Nothing is waiting. " : "",
          ...(next ? ["Next attempt ", until(next), ". "] : ["Test calls are checking whether it is back. "]),
          h("a", { href: `#deliveries?provider=${provider.provider}` }, "Show failures"),
        ],
      };
    });
  });
}

/** The streams that an alert would name, except those of a provider that is unavailable. */
function lateStreams(streams, providers, statistics) {
  const isOut = (name) => providers.some(({ provider, ways }) => provider === name && ways.some(({ breaker }) => breaker !== "closed"));
  const late = streams.filter((stream) => isLate(stream, streams, statistics) && !isOut(stream.provider));
  if (!late.length) return [];
  const names = late.flatMap((stream, index) =>
    [index ? ", " : "", h("code", null, stream.name), ` (oldest ${span(stream.waited_seconds)})`]);
  return [{ key: "late-streams", kind: "bad", title: `Work is late in ${count(late.length, "stream", "streams")}:`,
    text: [...names, ". Start dispatchers, or see in their log what they retry."] }];
}

const isBulk = ({ lane }) => lane === "bulk";

/** Whether a stream's oldest entry waits too long; the rules are those of the alerts. */
export function isLate(stream, streams, statistics) {
  const limit = isBulk(stream) ? 3_600 : isJobs(stream) ? 60 : 120;
  if ((stream.waited_seconds ?? 0) <= limit) return false;
  if (isJobs(stream)) return true;
  const lanes = streamsOf(stream.provider, streams).filter((other) => isBulk(other) === isBulk(stream));
  return deliveriesIn(lanes) > 20 || (!isBulk(stream) && !acceptsNow(stream.provider, statistics));
}

/** Whether a provider accepted something in the last ten minutes. */
function acceptsNow(provider, statistics) {
  // Counts of a shorter time cannot rule it out.
  if (statistics && !statistics.complete && Date.now() - Date.parse(statistics.since) < 600_000) return true;
  const channel = statistics?.channels.find((one) => one.channel === provider);
  const accepted = channel?.outcomes.find(({ outcome }) => outcome === "accepted");
  return (accepted?.counts ?? []).slice(-10).some((value) => value > 0);
}

function lateSteps(counts) {
  if (!counts?.late) return [];
  return [{ key: "late-steps", kind: "bad", title: `${count(counts.late, "step is", "steps are")} late.`,
    text: ["Pushes after quiet hours, attention calls, e-mails, digests or scheduled jobs were due more than a minute ago. ",
      "Do dispatchers run? Their log names what they retry."] }];
}

function deadLetters(counts) {
  if (!counts?.dead_letters) return [];
  return [{ key: "dead-letters", kind: "warn", title: `${count(counts.dead_letters, "dead letter waits", "dead letters wait")}.`,
    text: ["Fix the sender or the catalog, then replay. ", h("a", { href: "#dead-letters" }, "Show reasons")] }];
}

/** The living processes whose version differs from that of most. */
function versions(processes) {
  const living = processes.filter(({ alive, version }) => alive && version);
  const most = commonVersion(living);
  const others = living.filter(({ version }) => version !== most);
  if (!others.length) return [];
  const names = others.slice(0, 5).flatMap(({ role, name, version }, index) =>
    [index ? ", " : "", `${role} `, h("code", null, name), ` (${version})`]);
  return [{ key: "versions", kind: "warn", title: "Not all processes have the same version.",
    text: [`Most have ${most}; these do not: `, ...names, others.length > 5 ? ` and ${number(others.length - 5)} more.` : "."] }];
}

/** The running dispatchers that lack a provider or an app that another has. */
function unequalDispatchers(dispatchers, providers) {
  const reports = providers.flatMap(({ provider, ways }) =>
    ways.map(({ app, dispatcher }) => ({ dispatcher, way: `${channelName(provider)} for app ${app}` })));
  const all = [...new Set(reports.map(({ way }) => way))];
  const gaps = dispatchers.flatMap((name) => {
    const own = reports.filter(({ dispatcher }) => dispatcher === name).map(({ way }) => way);
    return all.filter((way) => !own.includes(way)).map((way) => ({ name, way }));
  });
  if (!gaps.length) return [];
  const names = gaps.slice(0, 5).flatMap(({ name, way }, index) => [index ? ", " : "", h("code", null, name), ` lacks ${way}`]);
  return [{ key: "unequal-dispatchers", kind: "warn", title: "Not all dispatchers have the same providers and apps.",
    text: [...names, gaps.length > 5 ? ` and ${number(gaps.length - 5)} more` : "", ". Pushes that such a dispatcher routes may end as no_provider."] }];
}

/** Returns the version of most living processes; of two that are as many, the newer. */
export function commonVersion(processes) {
  const tally = new Map();
  for (const { alive, version } of processes) if (alive && version) tally.set(version, (tally.get(version) ?? 0) + 1);
  const order = ([one, some], [other, more]) => more - some || other.localeCompare(one, "en", { numeric: true });
  return [...tally].sort(order)[0]?.[0] ?? null;
}
