// Carillon · admin-dead-letters.js
// SPDX-License-Identifier: Apache-2.0

import { Filters, momentFilter, textFilter } from "./admin-filters.js";
import { address } from "./admin-forms.js";
import { discardMany, letters, replayMany } from "./admin-letter-bulk.js";
import { LetterList, OneLetter } from "./admin-letter-list.js";
import { card, fill, number, orFault, when } from "./admin-parts.js";
import { h } from "./dom.js";

/** The gateway lists no more reasons than this. */
const mostReasons = 100;
const mostFrequent = `The ${mostReasons} most frequent. Filter to see others.`;

/**
 * The view of dead letters: `#dead-letters` counts them by reason, `#dead-letters/letters` lists
 * those that match the query, `#dead-letters/17` shows one.
 */
export function deadLetters(page, [name = ""], query) {
  if (/^\d+$/.test(name)) return new OneLetter(page, name);
  return name === "letters" ? new LetterList(page, query) : new Reasons(page, query);
}

/** The reasons of dead letters, the most frequent first. */
class Reasons {
  #page;
  #filters;
  #fault = h("p", { class: "fault", role: "alert" });
  #list = h("div", { class: "letters reasons" });
  #all = h("a", { class: "plain all-letters" }, "Show all letters");
  every = 10_000;

  constructor(page, query) {
    this.#page = page;
    this.#filters = new Filters(query, [
      textFilter("type", "Type"), textFilter("stream", "Stream", 256), momentFilter("since", "Failed since"),
      momentFilter("until", "Failed before"),
    ], () => this.#filter(), this.#all);
    this.element = h("div", { class: "view" },
      card("Why jobs and deliveries were given up", this.#filters.element, this.#fault, this.#list));
  }

  async update() {
    const { values } = this.#filters;
    this.#all.href = address("dead-letters/letters", values);
    const query = new URLSearchParams(values).toString();
    const found = await orFault(this.#page, this.#fault, () =>
      this.#page.call("GET", `/v1/admin/dead-letters/reasons${query ? `?${query}` : ""}`));
    if (values !== this.#filters.values) return;
    if (!found) return fill(this.#list, null, () => []);
    const { reasons } = found;
    fill(this.#list, [found, Math.floor(Date.now() / 60_000)], () => {
      const others = reasons.length < mostReasons ? [] : [h("p", { class: "hint" }, mostFrequent)];
      if (reasons.length) return [...reasons.map((one) => this.#row(one, values)), ...others];
      return h("p", { class: "hint empty" }, "No dead letters.");
    });
  }

  #filter() {
    const goal = address("dead-letters", this.#filters.values);
    if (location.hash !== goal) history.pushState(null, "", goal);
    this.#page.refresh();
  }

  #row({ reason, stream, count, replayable, oldest_at: oldest, newest_at: newest }, values) {
    const filter = { ...values, reason: reason.slice(0, 1024), stream };
    const act = async (work) => {
      await work(this.#page, filter, count);
      this.#page.refresh();
    };
    const [first, last] = [when(oldest), when(newest)];
    return h("article", { class: "reason-group", "data-reason": reason, "data-stream": stream },
      h("div", { class: "letter-head" },
        h("p", { class: "reason" }, h("a", { href: address("dead-letters/letters", filter) }, reason)),
        h("p", { class: "hint" }, h("strong", null, letters(count)), " from ", h("code", null, stream), " · ",
          first.textContent === last.textContent ? last : ["oldest ", first, ", newest ", last],
          replayable < count ? ` · ${number(count - replayable)} cannot be replayed now` : "")),
      h("div", { class: "row" },
        h("button", {
          type: "button", class: "plain replay-all", disabled: !replayable, "aria-label": `Replay all: ${reason} (${stream})`,
          onclick: () => act(replayMany),
        }, "Replay all"),
        h("button", {
          type: "button", class: "plain discard-all", "aria-label": `Discard all: ${reason} (${stream})`,
          onclick: () => act(discardMany),
        }, "Discard all")));
  }
}
