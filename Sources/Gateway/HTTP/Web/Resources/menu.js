// Carillon · menu.js
// SPDX-License-Identifier: Apache-2.0

import { h } from "./dom.js";
import { icon } from "./icons.js";

/** A menu that opens at a button; Escape and a click outside close it. */
export class Menu {
  #button = null;
  /** When it closed; a click on its button has closed it before the button hears of the click. */
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
    const place = items.indexOf(this.element.getRootNode().activeElement);
    const goal = {
      ArrowDown: (place + 1) % items.length, ArrowUp: (place - 1 + items.length) % items.length, Home: 0, End: items.length - 1,
    }[event.key];
    // The list behind it has keys of its own.
    event.stopPropagation();
    if (event.key === "Tab") this.element.hidePopover();
    if (goal === undefined) return;
    event.preventDefault();
    items[goal].focus();
  }
}
