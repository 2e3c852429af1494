// Carillon · admin-charts.js
// SPDX-License-Identifier: Apache-2.0

import { number, share } from "./admin-parts.js";
import { h, svg } from "./dom.js";

const width = 600;
const height = 132;
const foot = 18;

/** The order of outcomes in a bar, from good at the bottom to bad at the top. */
const order = ["accepted", "delivered", "waiting", "retry", "skipped", "suppressed", "failed"];

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Returns the smallest round number that is at least the value. */
function ceiling(value) {
  if (value <= 5) return 5;
  const scale = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * scale).find((step) => step >= value);
}

/**
 * Draws minutes as stacked bars.
 *
 * @param {{title: string, outcomes: {outcome: string, counts: number[]}[]}} series
 * @param {number} begin the first minute, in milliseconds.
 */
export function chart({ title, outcomes }, begin) {
  const stacked = [...outcomes].sort((one, other) => order.indexOf(one.outcome) - order.indexOf(other.outcome));
  const minutes = stacked[0]?.counts.length ?? 0;
  const sums = Array.from({ length: minutes }, (_, index) => sum(stacked.map(({ counts }) => counts[index])));
  const total = sum(sums);
  const failed = sum(stacked.find(({ outcome }) => outcome === "failed")?.counts ?? []);
  const top = ceiling(Math.max(...sums, 1));
  const plot = height - foot;
  const step = width / Math.max(1, minutes);
  const y = (value) => plot - (value / top) * (plot - 12);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", preserveAspectRatio: "none",
    "aria-label": `${title}: ${number(total)} in ${minutes} minutes, ${number(failed)} failed` },
    [0, top / 2, top].map((value) =>
      svg("line", { class: value ? "grid" : "axis", x1: 0, x2: width, y1: y(value), y2: y(value) })));
  for (let index = 0; index < minutes; index += 1) picture.append(column(stacked, index, { step, y, plot, begin }));
  const mark = (text, kind) => h("span", { class: `mark ${kind}`, "aria-hidden": "true" }, text);
  return h("figure", { class: "chart" },
    h("figcaption", null, h("strong", null, title), h("span", { class: "total" }, number(total)),
      failed ? h("span", { class: "bad" }, `${share(failed, total)} failed`) : null),
    h("div", { class: "plot" }, picture, mark(number(top), "top"), mark(clock(begin), "first"),
      mark(clock(begin + minutes * 60_000), "last")),
    legend(stacked), numbers(title, stacked, begin, sums));
}

function column(stacked, index, { step, y, plot, begin }) {
  const parts = stacked.filter(({ counts }) => counts[index]).map(({ outcome, counts }) => `${outcome} ${number(counts[index])}`);
  const group = svg("g", { class: "minute" },
    svg("title", null, `${clock(begin + index * 60_000)}: ${parts.join(", ") || "nothing"}`),
    svg("rect", { class: "hit", x: index * step, y: 0, width: step, height: plot }));
  let below = 0;
  for (const { outcome, counts } of stacked) {
    if (!counts[index]) continue;
    // Failures stay visible even if they are one in thousands.
    const least = outcome === "failed" ? 2.5 : 1;
    const tall = Math.max(least, y(below) - y(below + counts[index]));
    group.append(svg("rect", {
      class: `outcome-${outcome}`, x: index * step + 1, width: Math.max(1, step - 2), y: y(below) - tall, height: tall,
    }));
    below += counts[index];
  }
  return group;
}

function legend(stacked) {
  return h("ul", { class: "legend" }, stacked.map(({ outcome, counts }) => h("li", null,
    h("span", { class: `key outcome-${outcome}`, "aria-hidden": "true" }), outcome, " ",
    h("b", null, number(sum(counts))))));
}

/** The same data as a table, for screen readers and exact values. */
function numbers(title, stacked, begin, sums) {
  const rows = sums.map((count, index) => [index, count]).filter(([, count]) => count).reverse();
  if (!rows.length) return null;
  return h("details", { class: "numbers" }, h("summary", null, "Show as a table"),
    h("div", { class: "scroller", tabindex: "0", role: "group", "aria-label": title },
      h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Minute"),
        stacked.map(({ outcome }) => h("th", { scope: "col", class: "number" }, outcome)))),
      h("tbody", null, rows.map(([index]) => h("tr", null, h("td", null, clock(begin + index * 60_000)),
        stacked.map(({ counts }) => h("td", { class: "number" }, number(counts[index])))))))));
}

function clock(moment) {
  const style = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(moment).toLocaleTimeString(document.documentElement.lang, style);
}
