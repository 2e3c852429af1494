// Carillon · inbox-panel.js
// SPDX-License-Identifier: Apache-2.0

import { h, iconButton } from "./dom.js";
import { ListView } from "./inbox-list.js";
import { SettingsView } from "./inbox-settings.js";

/** The visible inbox: header, list, settings, banner and toast. */
export class Panel {
  static clock = 30_000;
  static toastTime = 6_000;
  /** Hides interruptions that are shorter than this. */
  static grace = 1_500;

  #inbox;
  #context;
  #list;
  #settings;
  #filter = "all";
  #isScheduled = false;
  #banner = h("div", { class: "banner", role: "status", hidden: true });
  #toast = h("div", { class: "toast", role: "status" });
  #spoken = h("p", { class: "spoken", "aria-live": "polite" });
  #count = h("span", { class: "count" });
  #timers = {};

  /** @param context `language`, `texts`, `open`, `act`, and `close` if the panel can close. */
  constructor(inbox, push, context) {
    this.#inbox = inbox;
    this.#context = {
      ...context, filter: () => this.#filter, tell: (name) => this.tell(context.texts[name] ?? name),
      markRead: (id) => inbox.markRead(id), remove: (id) => inbox.remove(id),
    };
    this.#list = new ListView(inbox, this.#context);
    this.#settings = new SettingsView(inbox.client, push, this.#context);
    this.element = this.#frame();
    inbox.addEventListener("change", () => this.#schedule());
    inbox.addEventListener("state", ({ detail }) => this.#showState(detail));
    inbox.addEventListener("fault", ({ detail }) => this.#context.tell(detail));
    inbox.addEventListener("arrival", ({ detail }) => this.#announce(detail));
  }

  start() {
    this.render();
    this.#timers.clock ??= setInterval(() => this.#list.tick(), Panel.clock);
  }

  stop() {
    for (const timer of Object.values(this.#timers)) clearTimeout(timer);
    this.#timers = {};
  }

  #frame() {
    const { texts, close } = this.#context;
    const filter = (name, label, ...more) => h("button", {
      type: "button", class: "filter", "data-filter": name, "aria-pressed": String(name === this.#filter),
      onclick: () => this.#choose(name),
    }, label, ...more);
    this.readAll = h("button", {
      type: "button", class: "quiet read-all", onclick: () => this.#inbox.markAllRead(),
    }, texts.markAllRead);
    this.gear = iconButton("settings", texts.settings, () => this.showSettings(true), { class: "icon-button gear" });
    this.back = iconButton("back", texts.back, () => this.showSettings(false), { class: "icon-button back" });
    const head = h("header", { class: "head" },
      h("h2", { id: "carillon-title" }, texts.notifications),
      h("div", { class: "head-tools" }, this.gear,
        close ? iconButton("close", texts.close, close, { class: "icon-button close" }) : null));
    const bar = h("div", { class: "bar" },
      h("div", { class: "filters", role: "group", "aria-label": texts.notifications },
        filter("all", texts.all), filter("unread", texts.unread, this.#count)),
      this.readAll);
    const settingsHead = h("header", { class: "head settings-head" }, this.back, h("h2", null, texts.settings));
    return h("div", { class: "panel" },
      h("div", { class: "main" }, head, bar, this.#banner, this.#list.element),
      h("aside", { class: "side", "aria-label": texts.settings }, settingsHead, this.#settings.element),
      this.#toast, this.#spoken);
  }

  #choose(filter) {
    this.#filter = filter;
    for (const button of this.element.querySelectorAll(".filter")) {
      button.setAttribute("aria-pressed", String(button.dataset.filter === filter));
    }
    this.render();
    this.#list.element.scrollTop = 0;
  }

  /** Shows the settings or the list. */
  showSettings(isShown) {
    this.element.classList.toggle("shows-settings", isShown);
    if (isShown) this.loadSettings();
    (isShown ? this.back : this.gear).focus();
  }

  loadSettings() { this.#settings.load(); }

  // Renders once for a burst of changes. Uses a timer, because hidden tabs draw no frames.
  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setTimeout(() => {
      this.#isScheduled = false;
      this.render();
    });
  }

  render() {
    const { unread } = this.#inbox.store;
    this.#count.textContent = unread ? (unread > 999 ? "999+" : String(unread)) : "";
    this.#count.hidden = !unread;
    this.readAll.disabled = !unread;
    this.#list.render(this.#filter);
  }

  #showState(state) {
    this.element.dataset.state = state;
    if (state === "online") {
      clearTimeout(this.#timers.banner);
      this.#timers.banner = null;
      this.#banner.hidden = true;
    } else if (!this.#banner.hidden || !navigator.onLine || state === "displaced" || state === "signedOut") {
      this.#showBanner(state);
    } else {
      this.#timers.banner ??= setTimeout(() => {
        this.#timers.banner = null;
        this.#showBanner(this.#inbox.state);
      }, Panel.grace);
    }
  }

  #showBanner(state) {
    const { texts } = this.#context;
    // While the banner says offline, a reconnect attempt changes nothing until it succeeds.
    if (state === "online" || (state === "connecting" && !this.#banner.hidden)) return;
    this.#banner.replaceChildren(h("span", null, texts[state === "signedOut" ? "signedOutText" : state]));
    if (state === "offline") {
      this.#banner.append(h("button", { type: "button", class: "plain", onclick: () => this.#inbox.retry() }, texts.tryNow));
    }
    this.#banner.hidden = false;
  }

  /** Shows a toast. */
  tell(text) {
    clearTimeout(this.#timers.toast);
    this.#toast.textContent = text;
    this.#toast.classList.add("shown");
    this.#timers.toast = setTimeout(() => this.#toast.classList.remove("shown"), Panel.toastTime);
  }

  /** Announces an arrival to screen readers, except in quiet hours. */
  #announce(item) {
    if (!item.silent) this.#spoken.textContent = this.#context.texts.arrived(item.title);
  }
}
