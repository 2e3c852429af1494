// Carillon · inbox-list.js
// SPDX-License-Identifier: Apache-2.0

import { h } from "./dom.js";
import { ItemView } from "./inbox-item.js";
import { day, dayName } from "./time.js";

/** The list of notifications, grouped by day, with its empty, loading and failed states. */
export class ListView {
  #context;
  #inbox;
  #items = new Map();
  #days = new Map();
  #state = null;
  /** The day at the last render. */
  #today;
  #groups = h("div", { class: "days" });
  #more;
  #pill;
  /** The newest notification that the user has had on the screen. */
  #newest = null;

  /** @param context as of the items, and `filter`, `isArchive`, `isFeed` and `undo`. */
  constructor(inbox, context) {
    this.#inbox = inbox;
    this.#context = context;
    this.#more = h("button", { type: "button", class: "more", onclick: () => this.#loadMore() }, context.texts.loadMore);
    this.#pill = h("button", { type: "button", class: "pill", part: "pill", hidden: true, onclick: () => this.#showNew() }, context.texts.fresh(1));
    this.scroller = h("div", {
      class: "list", part: "list", tabindex: "-1", onkeydown: (event) => this.#key(event), onscroll: () => this.#scrolled(),
    }, this.#groups, this.#more);
    this.element = h("div", { class: "list-frame" }, this.#pill, this.scroller);
  }

  render() {
    const filter = this.#context.filter();
    const list = this.#list(filter);
    const { length } = this.#entries();
    const isAtEnd = this.element.getRootNode().activeElement === this.#more;
    this.#today = +day(Date.now());
    const kept = new Set(list.map((item) => item.id));
    const lost = this.#neighbourOfLost(kept);
    const top = this.#anchor(kept);
    for (const [id, view] of this.#items) {
      if (kept.has(id)) continue;
      view.element.remove();
      this.#items.delete(id);
    }
    this.#arrange(list);
    top?.();
    lost?.focus();
    this.#showState(list.length === 0 ? this.#emptyState(filter) : null);
    this.#more.hidden = !this.#cursor(filter) || list.length === 0;
    const isLoading = this.#context.isArchive() ? this.#inbox.isLoadingArchive : this.#inbox.isLoading;
    // `disabled` would lose the focus.
    this.#more.setAttribute("aria-disabled", String(isLoading));
    this.#more.textContent = isLoading ? this.#context.texts.loading : this.#context.texts.loadMore;
    this.scroller.setAttribute("aria-busy", String(isLoading));
    // After the last page, the focus goes from the button to the first entry of that page.
    if (isAtEnd && this.#more.hidden) (this.#main(this.#entries()[length]) ?? this.scroller).focus({ preventScroll: true });
    this.#showPill(list);
  }

  /** Shows another list, or the same one in other words, from its top. */
  reset() {
    this.#items.clear();
    this.#days.clear();
    this.#groups.replaceChildren();
    this.#newest = null;
    this.#state = undefined;
    this.scroller.scrollTop = 0;
    this.render();
  }

  tick() {
    for (const view of this.#items.values()) view.tick();
    // Headings such as “Today” change at midnight.
    if (this.#today !== +day(Date.now())) this.render();
  }

  #list(filter) {
    return this.#context.isArchive() ? this.#inbox.archive?.items ?? [] : this.#inbox.store.list(filter);
  }

  #cursor(filter) {
    return this.#context.isArchive() ? this.#inbox.archive?.cursor : this.#inbox.store.cursor(filter);
  }

  /**
   * Returns a function that keeps the visible entries in place after others were added above; null
   * at the top.
   */
  #anchor(kept) {
    if (this.scroller.scrollTop < 8) return null;
    const edge = this.scroller.getBoundingClientRect().top;
    const element = this.#entries().find((one) => kept.has(one.dataset.id) && one.getBoundingClientRect().bottom > edge);
    if (!element) return null;
    const before = element.getBoundingClientRect().top;
    return () => { this.scroller.scrollTop += element.getBoundingClientRect().top - before; };
  }

  // New notifications above the visible part.

  #showPill(list) {
    this.#newest ??= list[0]?.id ?? null;
    if (this.scroller.scrollTop < 8) this.#newest = list[0]?.id ?? this.#newest;
    const count = this.#context.isArchive() ? 0 : list.filter((item) => item.id > (this.#newest ?? "")).length;
    this.#pill.hidden = count === 0;
    if (count) this.#pill.textContent = this.#context.texts.fresh(count);
  }

  #scrolled() {
    if (this.scroller.scrollTop < 8 && !this.#pill.hidden) this.render();
  }

  #showNew() {
    this.scroller.scrollTop = 0;
    this.render();
    this.#main(this.#entries()[0])?.focus({ preventScroll: true });
  }

  /** Returns the element that gets the focus when the focused entry disappears. */
  #neighbourOfLost(kept) {
    const focused = this.element.getRootNode().activeElement?.closest?.(".item");
    if (!focused || kept.has(focused.dataset.id)) return null;
    const all = this.#entries();
    const index = all.indexOf(focused);
    const isKept = (element) => kept.has(element.dataset.id);
    const next = all.slice(index + 1).find(isKept) ?? all.slice(0, index).findLast(isKept);
    return this.#main(next) ?? this.scroller;
  }

  #arrange(list) {
    const used = new Set();
    const indices = new Map();
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
      const index = indices.get(group) ?? 0;
      indices.set(group, index + 1);
      if (group.children[index] !== view.element) group.insertBefore(view.element, group.children[index] ?? null);
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
      const heading = h("h3", { class: "day", part: "day" });
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

  // The states of a list without entries.

  #emptyState(filter) {
    const { archive, hasMoreFailed, isLoading, isLoadingArchive, loadError, store } = this.#inbox;
    if (this.#context.isArchive()) {
      if (archive && !archive.cursor) return "emptyArchive";
      return hasMoreFailed && !isLoadingArchive ? "failed" : "more";
    }
    if (store.isLoaded && store.cursor(filter)) return hasMoreFailed ? "failed" : "more";
    if (store.isLoaded && filter.isUnread) return store.total > 0 ? "emptyUnread" : "empty";
    if (store.isLoaded) return filter.category && !this.#context.feed.category ? "emptyCategory" : "empty";
    if (loadError?.kind === "signedOut") return "signedOut";
    return loadError && !isLoading ? "failed" : "loading";
  }

  #showState(wanted) {
    if (wanted === "more") this.#loadMore();
    const state = wanted === "more" ? "loading" : wanted;
    if (state === this.#state) return;
    this.#state = state;
    this.scroller.querySelector(".state")?.remove();
    if (!state) return;
    const { texts } = this.#context;
    if (state === "loading") {
      this.scroller.prepend(h("div", { class: "state loading", role: "status", "aria-label": texts.loading },
        ...Array.from({ length: 4 }, () => h("div", { class: "placeholder" }, h("span"), h("span"), h("span")))));
      return;
    }
    const place = h("span");
    // Load the pictures only when needed: most lists are never empty and never fail.
    import("./inbox-pictures.js").then(({ picture }) => place.replaceWith(picture(state)), () => {});
    const usual = [
      place, h("h3", null, texts[`${state}Title`]), h("p", null, texts[`${state}Text`]),
      state === "failed"
        ? h("button", { type: "button", class: "plain", onclick: () => this.#inbox.retry() }, texts.tryNow) : null,
    ];
    // A page may have its own picture and words for an empty inbox.
    this.scroller.prepend(h("div", { class: `state ${state}`, part: "state" },
      state === "empty" ? h("slot", { name: "empty" }, ...usual.filter(Boolean)) : usual));
  }

  #loadMore() {
    if (this.#context.isArchive()) this.#inbox.loadArchive(!this.#inbox.archive);
    else this.#inbox.loadMore(this.#context.filter());
  }

  // Keys: arrows, Home and End go through the entries; Delete deletes, E archives, U marks as
  // unread or read, Z undoes the last step.

  #entries() { return [...this.#groups.querySelectorAll(".item")]; }

  /** Returns the part of an entry that gets the focus. */
  #main(entry) { return this.#items.get(entry?.dataset.id)?.main; }

  #key(event) {
    // Content of the slot `empty` is not in the scroller's tree, and has keys of its own.
    if (event.altKey || event.ctrlKey || event.metaKey || !this.scroller.contains(event.target)) return;
    const entries = this.#entries();
    const item = event.target.closest(".item");
    const index = entries.indexOf(item);
    const goal = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: entries.length - 1 }[event.key];
    const act = event.key === "z" ? this.#context.undo : item && this.#action(event.key, this.#items.get(item.dataset.id).item);
    if (goal === undefined && !act) return;
    event.preventDefault();
    // A key that is held down would delete down the list.
    if (act) return event.repeat ? undefined : act();
    this.#main(entries[Math.min(Math.max(goal, 0), entries.length - 1)])?.focus();
  }

  #action(key, item) {
    const { archive, isArchive, markRead, markUnread, remove, restore } = this.#context;
    const actions = {
      Delete: () => remove(item.id),
      e: () => (isArchive() ? restore : archive)(item.id),
      u: () => (item.read_at ? markUnread : markRead)(item.id),
    };
    return actions[key];
  }
}
