// Carillon · admin-letter-bulk.js
// SPDX-License-Identifier: Apache-2.0

import { confirm, number } from "./admin-parts.js";
import { h } from "./dom.js";

const language = document.documentElement.lang;
const usualRate = 100;

export const letters = (count) => `${number(count)} ${count === 1 ? "dead letter" : "dead letters"}`;

/** Returns the filter, limited to letters that exist now, with their count. */
async function chosen(page, values) {
  const query = new URLSearchParams({ ...values, limit: 1, count: true });
  // The gateway names the end of the range: the clock of this browser may be wrong.
  const { count, replayable, until } = await page.call("GET", `/v1/admin/dead-letters?${query}`);
  return { filter: { ...values, until }, words: words(values), count, replayable };
}

function words({ reason, stream, type, since, until }) {
  const moment = (text) => new Date(text).toLocaleString(language, { dateStyle: "medium", timeStyle: "medium" });
  const parts = [
    reason ? `whose reason begins with “${reason}”` : null, type ? `of type ${type}` : null, stream ? `from ${stream}` : null,
    since ? `since ${moment(since)}` : null, until ? `before ${moment(until)}` : null,
  ].filter(Boolean);
  return parts.length ? ` ${parts.join(", ")}` : "";
}

/** Warns of letters with a longer reason: the filter compares only the beginning of a reason. */
function longer(count, expected) {
  const more = count - (expected ?? count);
  return more > 0 ? ` For ${number(more)} of them the reason goes on after these words.` : "";
}

/**
 * Asks, then replays the letters of a filter at a rate.
 *
 * @param {number} [expected] the letters that the user knows of, if they have one reason.
 */
export async function replayMany(page, values, expected) {
  await page.perform(async () => {
    const { filter, words, count, replayable } = await chosen(page, values);
    if (!replayable) return page.tell(count ? "All are replaying already, or cannot be replayed." : "No dead letters.");
    const others = count - replayable;
    const text = `${letters(replayable)}${words} ${replayable === 1 ? "returns to its stream" : "return to their streams"}.`
      + longer(count, expected)
      + (others ? ` ${letters(others)} more ${others === 1 ? "is" : "are"} replaying already, or cannot be replayed.` : "");
    const rate = h("input", { name: "rate", type: "number", min: 1, max: 10_000, required: true, value: usualRate });
    const field = h("label", { class: "field" }, h("span", null, "Letters a second"), rate);
    if (!(await confirm(`Replay ${letters(replayable)}?`, text, `Replay ${number(replayable)}`, "primary", field))) return;
    const done = await page.call("POST", "/v1/admin/dead-letters/replay", { ...filter, rate: Number(rate.value) });
    page.tell(`Replaying ${letters(done.count)}.`);
  });
}

/** Asks, then discards the letters of a filter. */
export async function discardMany(page, values, expected) {
  await page.perform(async () => {
    const { filter, words, count } = await chosen(page, values);
    if (!count) return page.tell("No dead letters.");
    const text = `${letters(count)}${words} ${count === 1 ? "is" : "are"} deleted with all fields.${longer(count, expected)}`;
    if (!(await confirm(`Discard ${letters(count)}?`, text, `Discard ${number(count)}`))) return;
    const done = await page.call("DELETE", `/v1/admin/dead-letters?${new URLSearchParams(filter)}`);
    page.tell(`${letters(done.count)} discarded.`);
  });
}
