// Carillon · admin-letter-list.js
// SPDX-License-Identifier: Apache-2.0

import { Filters, momentFilter, textFilter } from "./admin-filters.js";
import { address } from "./admin-forms.js";
import { LetterView } from "./admin-letter.js";
import { discardMany, replayMany } from "./admin-letter-bulk.js";
import { arrange, card, firstPages, orFault } from "./admin-parts.js";
import { h } from "./dom.js";

const pageSize = 25;
const mostPages = 10;

/** A replay takes a second or so. */
const pause = (letters) => (letters.some(({ isReplaying }) => isReplaying) ? 1_000 : 10_000);

/** The dead letters that match the filters, newest first. */
export class LetterList {
  #page;
  #filters;
  #views = new Map();
  #shown = [];
  #pages = 1;
  #fault = h("p", { class: "fault", role: "alert" });
  #none = h("p", { class: "hint empty", hidden: true }, "No dead letters.");
  #list = h("div", { class: "letters" });
  #rest = h("p", { class: "hint", hidden: true });
  #more = h("button", { type: "button", class: "plain more", hidden: true, onclick: () => this.#loadMore() }, "Show older");

  constructor(page, query) {
    this.#page = page;
    const all = (work) => async () => {
      await work(page, this.#filters.values);
      page.refresh();
    };
    this.#filters = new Filters(query, [
      textFilter("reason", "Reason begins with", 1024), textFilter("type", "Type"), textFilter("stream", "Stream", 256),
      momentFilter("since", "Failed since"), momentFilter("until", "Failed before"),
    ], () => this.#filter(),
    h("button", { type: "button", class: "plain", onclick: all(replayMany) }, "Replay these"),
    h("button", { type: "button", class: "danger", onclick: all(discardMany) }, "Discard these"),
    h("a", { class: "plain by-reason", href: "#dead-letters" }, "By reason"));
    this.element = h("div", { class: "view" },
      card("Jobs and deliveries that were given up", this.#filters.element, this.#fault, this.#none, this.#list,
        this.#more, this.#rest));
  }

  get every() { return pause(this.#shown); }

  async update() {
    const asked = this.#filters.values;
    const found = await orFault(this.#page, this.#fault, () =>
      firstPages(this.#page, "/v1/admin/dead-letters", "dead_letters", { ...asked, limit: pageSize }, this.#pages));
    if (asked !== this.#filters.values) return;
    const letters = found?.items ?? [];
    this.#none.hidden = !found || letters.length > 0;
    this.#more.hidden = !found?.cursor || this.#pages >= mostPages;
    this.#rest.hidden = !found?.cursor || this.#pages < mostPages;
    // A page of large letters has fewer than its limit, so count them.
    this.#rest.textContent = `The newest ${letters.length}. Filter to see others.`;
    for (const letter of letters) {
      if (!this.#views.has(letter.id)) this.#views.set(letter.id, new LetterView(this.#page, letter));
      this.#views.get(letter.id).show(letter);
    }
    const ids = new Set(letters.map(({ id }) => id));
    for (const [id, view] of this.#views) {
      // A letter that is being edited stays, though newer ones have filled the page.
      if (!ids.has(id) && !view.element.querySelector(".letter-form")) this.#views.delete(id);
    }
    this.#shown = [...this.#views.entries()].sort(([one], [other]) => other - one).map(([, view]) => view);
    arrange(this.#list, this.#shown.map(({ element }) => element));
  }

  async #loadMore() {
    const count = this.#shown.length;
    this.#pages += 1;
    await this.#page.refresh();
    if (this.#more.hidden) this.#list.children[count]?.querySelector("a")?.focus();
  }

  #filter() {
    this.#pages = 1;
    const goal = address("dead-letters/letters", this.#filters.values);
    if (location.hash !== goal) history.pushState(null, "", goal);
    this.#page.refresh();
  }
}

/** One dead letter, as a link to it shows it. */
export class OneLetter {
  #page;
  #id;
  #view = null;
  #said = h("p", { class: "hint", role: "status" });
  #list = h("div", { class: "letters" });

  constructor(page, id) {
    this.#page = page;
    this.#id = id;
    this.element = h("div", { class: "view" }, card(`Dead letter ${id}`, this.#said, this.#list,
      h("div", { class: "row" }, h("a", { class: "plain", href: "#dead-letters/letters" }, "Show all letters"))));
  }

  get every() { return this.#view ? pause([this.#view]) : null; }

  async update() {
    const letter = await this.#page.callIfThere(`/v1/admin/dead-letters/${this.#id}`);
    const said = letter ? "" : this.#view ? "It is gone: replayed or discarded." : "There is no such letter: it was replayed or discarded.";
    if (this.#said.textContent !== said) this.#said.textContent = said;
    if (letter) {
      this.#view ??= new LetterView(this.#page, letter, true);
      this.#view.show(letter);
    } else {
      this.#view = null;
    }
    arrange(this.#list, this.#view ? [this.#view.element] : []);
  }
}
