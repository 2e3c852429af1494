// Carillon · menu.js
// SPDX-License-Identifier: Apache-2.0

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { later } from "./inbox-styles.js";
import { day } from "./time.js";

later.menu.replaceSync(`
.menu { position: fixed; inset: var(--y, 0) auto auto var(--x, 0); margin: 0; padding: .35rem; min-inline-size: 13rem; max-inline-size: min(22rem, calc(100vw - 1rem)); border: 1px solid var(--line); border-radius: 12px; background: var(--surface); color: var(--text); box-shadow: var(--shadow); font-size: .9rem; overflow-y: auto; max-block-size: calc(100dvh - 1rem); }
.menu:popover-open { animation: rise .12s ease-out; }
.menu button { display: flex; align-items: center; gap: .65rem; inline-size: 100%; padding: .45rem .6rem; border-radius: 8px; }
.menu button:hover, .menu button:focus-visible { background: var(--raised); }
.menu button span { flex: 1; }
.menu button small { color: var(--muted); font-size: .78rem; }
.menu .icon { inline-size: 1.1rem; block-size: 1.1rem; color: var(--muted); }
.menu .destructive, .menu .destructive .icon { color: var(--danger); }
.menu hr { margin: .3rem .5rem; border: 0; border-block-start: 1px solid var(--line); }
.menu-heading { padding: .5rem .6rem .15rem; color: var(--muted); font-size: .75rem; font-weight: 650; }
`);

/** A menu that opens at a button; Escape and a click outside close it. */
export class Menu {
  #button = null;
  /** When it closed: a click on its button closes the menu before the button gets the click. */
  #closedAt = -Infinity;

  constructor() {
    this.element = h("div", {
      class: "menu", part: "menu", popover: "auto", role: "menu", onkeydown: (event) => this.#key(event),
    });
    this.element.addEventListener("beforetoggle", ({ newState }) => {
      if (newState === "closed") this.#closedAt = performance.now();
    });
    this.element.addEventListener("toggle", ({ newState }) => {
      if (newState === "open" || !this.#button) return;
      this.#button.setAttribute("aria-expanded", "false");
      // The focus goes back, unless the user has moved it elsewhere.
      const { activeElement } = this.element.getRootNode();
      if (!activeElement || this.element.contains(activeElement)) this.#button.focus();
    });
  }

  /**
   * Opens the menu at a button, or closes it if it is open there.
   *
   * @param entries each `{label, icon, run}`; null makes a line, and a text a heading.
   */
  open(button, entries) {
    if (this.element.matches(":popover-open")) this.element.hidePopover();
    if (this.#button === button && performance.now() - this.#closedAt < 250) return;
    // No toggle event fires if the menu moves straight to another button.
    this.#button?.setAttribute("aria-expanded", "false");
    this.#button = button;
    this.element.setAttribute("aria-label", button.getAttribute("aria-label"));
    this.element.replaceChildren(...entries.map((entry) => this.#entry(entry)));
    button.setAttribute("aria-expanded", "true");
    this.element.showPopover();
    this.#place(button);
    this.#items()[0]?.focus();
  }

  #entry(entry) {
    if (entry === null) return h("hr", { role: "separator" });
    if (typeof entry === "string") return h("p", { class: "menu-heading", role: "presentation" }, entry);
    const run = () => {
      this.element.hidePopover();
      entry.run();
    };
    return h("button", {
      type: "button", role: "menuitem", tabindex: "-1", class: entry.isDestructive ? "destructive" : null,
      "data-entry": entry.name, onclick: run,
    }, entry.icon ? icon(entry.icon) : null, h("span", null, entry.label), entry.hint ? h("small", null, entry.hint) : null);
  }

  /** Places the menu below the button, or above it where there is no room. */
  #place(button) {
    const { bottom, top, left, right } = button.getBoundingClientRect();
    const { offsetHeight: height, offsetWidth: width } = this.element;
    const isBelow = bottom + height + 12 < innerHeight || top < height + 12;
    const isLeft = getComputedStyle(this.element).direction === "rtl";
    const x = isLeft ? left : right - width;
    const { style } = this.element;
    style.setProperty("--x", `${Math.round(Math.min(Math.max(8, x), innerWidth - width - 8))}px`);
    style.setProperty("--y", `${Math.round(Math.max(8, isBelow ? bottom + 4 : top - height - 4))}px`);
  }

  #items() { return [...this.element.querySelectorAll("button")]; }

  #key(event) {
    const items = this.#items();
    const index = items.indexOf(this.element.getRootNode().activeElement);
    const goal = {
      ArrowDown: (index + 1) % items.length, ArrowUp: (index - 1 + items.length) % items.length, Home: 0, End: items.length - 1,
    }[event.key];
    // The list behind it has keys of its own.
    event.stopPropagation();
    if (event.key === "Tab") this.element.hidePopover();
    if (goal === undefined) return;
    event.preventDefault();
    items[goal].focus();
  }
}

/** Returns the entries of a notification's menu; `panel` shows their toasts. */
export function itemMenu(item, panel, inbox, context) {
  const { archive, language, markRead, markUnread, remove, texts } = context;
  const name = inbox.words.typeName(item.type);
  const snooze = async (time) => {
    if (!await inbox.snooze(item.id, time)) return;
    panel.tell(texts.snoozedDone(soon(time, language)), { label: texts.undo, run: () => inbox.restore(item.id) });
  };
  const mute = async () => {
    const before = await inbox.mute(item.type);
    if (!before) return;
    panel.settings?.reload();
    panel.tell(texts.mutedDone(name), {
      label: texts.undo, run: async () => { if (await inbox.prefer(before)) panel.settings?.reload(); },
    });
  };
  return [
    item.read_at
      ? { name: "unread", label: texts.markUnread, icon: "unread", run: () => markUnread(item.id) }
      : { name: "read", label: texts.markRead, icon: "check", run: () => markRead(item.id) },
    { name: "archive", label: texts.archive, icon: "archive", run: () => archive(item.id) },
    texts.snooze,
    ...Object.entries(snoozeTimes()).map(([key, time]) => ({
      name: `snooze-${key}`, label: texts.snoozeTimes[key], hint: soon(time, language), icon: "clock",
      run: () => snooze(time),
    })),
    null,
    ...(inbox.words.type(item.type).required
      ? [] : [{ name: "mute", label: texts.mute(name), icon: "mute", run: mute }]),
    { name: "remove", label: texts.remove, icon: "trash", isDestructive: true, run: () => remove(item.id) },
  ];
}

/** Formats a time of the next days: the time of day, with the weekday unless it is today. */
function soon(date, language, now = new Date()) {
  const isToday = day(date).getTime() === day(now).getTime();
  return date.toLocaleString(language, { weekday: isToday ? undefined : "long", hour: "numeric", minute: "2-digit" });
}

/** Returns the moments that a snooze offers, by name; those of the day only if they are ahead. */
function snoozeTimes(now = new Date()) {
  const at = (days, hour) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + days, hour);
  const times = { hour: new Date(now.getTime() + 3_600_000) };
  if (now.getHours() < 17) times.evening = at(0, 18);
  times.tomorrow = at(1, 9);
  // From Sunday on, the next Monday is tomorrow.
  if (now.getDay() !== 0) times.week = at(8 - now.getDay(), 9);
  return times;
}
