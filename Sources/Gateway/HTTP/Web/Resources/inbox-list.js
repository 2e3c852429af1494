// Carillon · inbox-list.js
// SPDX-License-Identifier: Apache-2.0

import { h, icon } from "./dom.js";
import { ItemView } from "./inbox-item.js";
import { day, dayName } from "./time.js";

/** The list of notifications, grouped by day, with its empty, loading and failed states. */
export class ListView {
  #context;
  #inbox;
  #items = new Map();
  #days = new Map();
  #state = null;
  #groups = h("div", { class: "days" });
  #more;

  constructor(inbox, context) {
    this.#inbox = inbox;
    this.#context = context;
    this.#more = h("button", { type: "button", class: "more", onclick: () => this.#loadMore() }, context.texts.loadMore);
    this.element = h("div", { class: "list", tabindex: "-1", onkeydown: (event) => this.#key(event) }, this.#groups, this.#more);
  }

  render(filter) {
    const { store } = this.#inbox;
    const list = store.list(filter);
    const kept = new Set(list.map((item) => item.id));
    const lost = this.#neighbourOfLost(kept);
    for (const [id, view] of this.#items) {
      if (kept.has(id)) continue;
      view.element.remove();
      this.#items.delete(id);
    }
    this.#arrange(list);
    lost?.focus();
    this.#showState(list.length === 0 ? this.#emptyState(filter) : null);
    this.#more.hidden = !store.cursor(filter) || list.length === 0;
    this.#more.disabled = this.#inbox.isLoading;
    this.#more.textContent = this.#inbox.isLoading ? this.#context.texts.loading : this.#context.texts.loadMore;
    this.element.setAttribute("aria-busy", String(this.#inbox.isLoading));
  }

  tick() {
    for (const view of this.#items.values()) view.tick();
  }

  /** Returns the element that gets the focus when the focused entry disappears. */
  #neighbourOfLost(kept) {
    const focused = this.element.getRootNode().activeElement?.closest?.(".item");
    if (!focused || kept.has(focused.dataset.id)) return null;
    const all = this.#entries();
    const place = all.indexOf(focused);
    const isKept = (element) => kept.has(element.dataset.id);
    const next = all.slice(place + 1).find(isKept) ?? all.slice(0, place).findLast(isKept);
    return next ? this.#items.get(next.dataset.id).main : this.element;
  }

  #arrange(list) {
    const used = new Set();
    const places = new Map();
    for (const item of list) {
      const date = day(item.created_at);
      const group = this.#day(date);
      used.add(date.getTime());
      let view = this.#items.get(item.id);
      if (!view) {
        view = new ItemView(this.#context);
        this.#items.set(item.id, view);
      }
      view.show(item);
      const place = places.get(group) ?? 0;
      places.set(group, place + 1);
      if (group.children[place] !== view.element) group.insertBefore(view.element, group.children[place] ?? null);
    }
    for (const [key, { section }] of this.#days) {
      if (used.has(key)) continue;
      section.remove();
      this.#days.delete(key);
    }
  }

  #day(date) {
    const key = date.getTime();
    const name = dayName(date, this.#context.language);
    let entry = this.#days.get(key);
    if (!entry) {
      const heading = h("h3", { class: "day" });
      const group = h("ul", { role: "list" });
      entry = { heading, group, section: h("section", { class: "group", "data-day": key }, heading, group) };
      this.#days.set(key, entry);
      const later = [...this.#groups.children].find((section) => Number(section.dataset.day) < key);
      this.#groups.insertBefore(entry.section, later ?? null);
    }
    if (entry.heading.textContent !== name) {
      entry.heading.textContent = name;
      entry.group.setAttribute("aria-label", name);
    }
    return entry.group;
  }

  #emptyState(filter) {
    const { hasMoreFailed, isLoading, loadError, store } = this.#inbox;
    if (store.isLoaded && store.cursor(filter)) return hasMoreFailed ? "failed" : "more";
    if (store.isLoaded) return filter === "unread" && store.total > 0 ? "emptyUnread" : "empty";
    if (loadError?.kind === "signedOut") return "signedOut";
    return loadError && !isLoading ? "failed" : "loading";
  }

  #showState(state) {
    if (state === this.#state) return;
    this.#state = state;
    this.element.querySelector(".state")?.remove();
    if (!state) return;
    if (state === "more") {
      this.#state = null;
      return this.#loadMore();
    }
    const { texts } = this.#context;
    if (state === "loading") {
      this.element.prepend(h("div", { class: "state loading", role: "status", "aria-label": texts.loading },
        ...Array.from({ length: 4 }, () => h("div", { class: "placeholder" }, h("span"), h("span"), h("span")))));
      return;
    }
    this.element.prepend(h("div", { class: `state ${state}` },
      h("div", { class: "picture" }, icon(state === "failed" ? "offline" : state === "emptyUnread" ? "checks" : "bell")),
      h("h3", null, texts[`${state}Title`]),
      h("p", null, texts[`${state}Text`]),
      state === "failed"
        ? h("button", { type: "button", class: "plain", onclick: () => this.#inbox.retry() }, texts.tryNow) : null));
  }

  #loadMore() { this.#inbox.loadMore(this.#context.filter()); }

  // Keys: arrows, Home and End go through the entries; Delete deletes.

  #entries() { return [...this.#groups.querySelectorAll(".item")]; }

  #key(event) {
    const entries = this.#entries();
    const item = event.target.closest(".item");
    const place = entries.indexOf(item);
    const goal = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (goal !== undefined && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      const entry = entries[Math.min(Math.max(goal, 0), entries.length - 1)];
      if (entry) this.#items.get(entry.dataset.id).main.focus();
    } else if (event.key === "Delete" && item) {
      event.preventDefault();
      this.#context.remove(item.dataset.id);
    }
  }
}
