// Carillon · inbox-panel.js
// SPDX-License-Identifier: Apache-2.0

import { h, loader } from "./dom.js";
import { iconButton } from "./icons.js";
import { ListView } from "./inbox-list.js";
import { isOfFeed } from "./inbox-store.js";
import { unmarked } from "./marks.js";

// Written out for bundlers, which follow the name without the query.
const loadMenu = loader((again) => (again ? import("./menu.js" + again) : import("./menu.js")));
const loadView = loader((again) => (again ? import("./inbox-settings.js" + again) : import("./inbox-settings.js")));

/** The visible inbox: header, tabs, list, settings, banner and toast. */
export class Panel {
  static clock = 30_000;
  static toastTime = 6_000;
  /** Connection losses shorter than this, in ms, are not shown. */
  static grace = 1_500;

  #inbox;
  #push;
  #context;
  #list;
  /** The view of the settings; null before they are first shown. */
  settings = null;
  /** The chosen tab: `all`, `unread`, `archive` or `category:` and its name. */
  #tab = "all";
  #isScheduled = false;
  #menu = null;
  /** The script of the menus; null until it has loaded. */
  #menuScript = null;
  /** The entries of the last menu that the user asked for. */
  #wanted = null;
  #tabs = h("div", { class: "filters", role: "group" });
  #title = h("h2", { id: "carillon-title" });
  #banner = h("div", { class: "banner", role: "status", hidden: true });
  #toast = h("div", { class: "toast", part: "toast", role: "status" });
  #spoken = h("p", { class: "spoken", "aria-live": "polite" });
  #side = h("div", { class: "settings-place" });
  #timers = {};
  #listeners = new AbortController();

  /**
   * @param push returns this browser's Web Push; null without a worker.
   * @param context `language`, `texts`, `open`, `act`, `render`, `feed` (its `category` and `org`,
   *   null for all), and `close` if the panel can close.
   */
  constructor(inbox, push, context) {
    this.#inbox = inbox;
    this.#push = push;
    const { texts } = context;
    const undoable = (change, text) => async (id) => {
      const isArchived = this.#tab === "archive";
      if (await change(id)) this.tell(text, { label: texts.undo, run: () => this.#bringBack(id, isArchived) });
    };
    this.#context = {
      ...context, filter: () => this.#filter(), isArchive: () => this.#tab === "archive",
      isFeed: Boolean(context.feed.category ?? context.feed.org), tell: (name) => this.tell(texts[name] ?? name),
      get words() { return inbox.words; },
      markRead: (id) => inbox.markRead(id), markUnread: (id) => inbox.markUnread(id),
      archive: undoable((id) => inbox.moveToArchive(id), texts.archivedDone),
      remove: undoable((id) => inbox.remove(id), texts.removedDone),
      restore: async (id) => { if (await inbox.restore(id)) this.tell(texts.restoredDone); },
      more: (item, button) => this.#openMenu(button, ({ itemMenu }) => itemMenu(item, this, inbox, this.#context)),
      undo: () => this.#toast.querySelector(".undo")?.click(),
    };
    this.#list = new ListView(inbox, this.#context);
    this.element = this.#frame();
    const { signal } = this.#listeners;
    inbox.addEventListener("change", () => this.#schedule(), { signal });
    document.addEventListener("visibilitychange", () => this.#schedule(), { signal });
    inbox.addEventListener("words", () => this.#list.reset(), { signal });
    inbox.addEventListener("user", () => this.#replaceSettings(), { signal });
    inbox.addEventListener("state", ({ detail }) => this.#showState(detail), { signal });
    inbox.addEventListener("fault", ({ detail }) => this.#context.tell(detail), { signal });
    inbox.addEventListener("arrival", ({ detail }) => this.#announce(detail), { signal });
  }

  start() {
    this.#inbox.speaker ??= this;
    this.render();
    if (this.#inbox.state !== "offline") this.#showState(this.#inbox.state);
    this.#timers.clock ??= setInterval(() => this.#list.tick(), Panel.clock);
  }

  stop() {
    this.#listeners.abort();
    if (this.#inbox.speaker === this) this.#inbox.speaker = null;
    for (const timer of Object.values(this.#timers)) clearTimeout(timer);
    this.#timers = {};
  }

  #frame() {
    const { texts, close, isFeed } = this.#context;
    this.#title.textContent = texts.notifications;
    this.readAll = iconButton("checks", texts.markAllRead, () => this.#markAllRead(), { class: "icon-button read-all" });
    this.gear = iconButton("settings", texts.settings, () => this.showSettings(true), { class: "icon-button gear" });
    this.back = iconButton("back", texts.back, () => this.showSettings(false), { class: "icon-button back" });
    this.leave = iconButton("back", texts.back, () => this.#choose("all"), { class: "icon-button back leave", hidden: true });
    // A feed has no menu, because the entries act on the whole inbox.
    const openMenu = ({ currentTarget }) => this.#openMenu(currentTarget, () => this.#mainMenu());
    const menu = isFeed ? null : iconButton("more", texts.menu, openMenu, {
      class: "icon-button list-menu", "aria-haspopup": "menu", "aria-expanded": "false",
    });
    const head = h("header", { class: "head", part: "header" },
      this.leave, this.#title, h("div", { class: "head-tools" }, h("slot", { name: "header" }), this.readAll, this.gear, menu,
        close ? iconButton("close", texts.close, close, { class: "icon-button close" }) : null));
    this.#tabs.setAttribute("aria-label", texts.notifications);
    this.bar = h("div", { class: "bar" }, this.#tabs);
    const settingsHead = h("header", { class: "head settings-head" }, this.back, h("h2", null, texts.settings));
    return h("div", { class: "panel" },
      h("div", { class: "main" }, head, this.bar, this.#banner, this.#list.element, h("slot", { name: "footer" })),
      h("aside", { class: "side", "aria-label": texts.settings }, settingsHead, this.#side),
      this.#toast, this.#spoken);
  }

  // Menus.

  #mainMenu() {
    const { texts } = this.#context;
    return [
      { name: "archive", label: texts.archived, icon: "archive", run: () => this.#choose("archive") },
      // Not in the archive, which it does not affect.
      ...(this.#tab === "archive"
        ? [] : [{ name: "remove-read", label: texts.removeRead, icon: "trash", isDestructive: true, run: () => this.#removeRead() }]),
    ];
  }

  async #loadMenu() {
    this.#menuScript ??= await loadMenu().catch(() => null);
  }

  /**
   * Opens a menu at a button; loads the menus' own file first if it could not be loaded before.
   *
   * @param entries returns the entries of the menu; gets the module of that file.
   */
  async #openMenu(button, entries) {
    const focused = () => button.getRootNode().activeElement;
    const before = focused();
    this.#wanted = entries;
    if (!this.#menuScript) await this.#loadMenu();
    // The user may have clicked again meanwhile.
    if (this.#wanted !== entries) return;
    if (!this.#menuScript) return this.#context.tell("refused");
    // The focus may have moved meanwhile, or the button may have disappeared.
    if (focused() !== before || !button.checkVisibility()) return;
    if (!this.#menu) {
      this.#menu = new this.#menuScript.Menu();
      this.element.append(this.#menu.element);
    }
    this.#menu.open(button, entries(this.#menuScript));
  }

  /** Brings back an entry to the inbox or, if it was archived, to the archive. */
  async #bringBack(id, isArchived) {
    const isBack = await this.#inbox.restore(id);
    if (isBack && isArchived && await this.#inbox.moveToArchive(id)) await this.#inbox.loadArchive(true);
  }

  #markAllRead() {
    if (this.#inbox.store.unread) this.#inbox.markAllRead();
  }

  /** Asks first, as this cannot be undone. */
  #removeRead() {
    const { texts } = this.#context;
    this.tell(`${texts.removeRead}?`, { label: texts.remove, isQuestion: true, run: () => this.#inbox.removeRead() });
  }

  // Tabs.

  #filter() {
    const { category, org } = this.#context.feed;
    const own = this.#tab.startsWith("category:") ? this.#tab.slice(9) : category;
    return { isUnread: this.#tab === "unread", category: own, org };
  }

  #choose(tab) {
    this.#tab = tab;
    // Another list may have failed; this one has not been tried.
    this.#inbox.hasMoreFailed = false;
    if (tab === "archive") this.#inbox.loadArchive(true);
    this.#list.reset();
    this.render();
  }

  #showTabs() {
    const { close, feed, isFeed, texts } = this.#context;
    const { words } = this.#inbox;
    const categories = feed.category || words.categories.length < 2 ? [] : words.categories;
    const wanted = [
      { tab: "all", label: texts.all }, { tab: "unread", label: texts.unread, count: this.#inbox.unread(feed) },
      ...categories.map((category) => ({
        tab: `category:${category}`, label: words.categoryName(category), count: this.#inbox.unread({ ...feed, category }),
      })),
    ];
    const shape = JSON.stringify(wanted.map(({ tab, label }) => [tab, label]));
    if (this.#tabs.dataset.shape !== shape) {
      this.#tabs.dataset.shape = shape;
      this.#tabs.replaceChildren(...wanted.map(({ tab, label }) => h("button", {
        type: "button", class: "filter", part: "tab", "data-filter": tab, onclick: () => this.#choose(tab),
      }, h("bdi", null, label), tab === "all" ? null : h("span", { class: "count" }))));
    }
    wanted.forEach(({ tab, count }, index) => {
      const button = this.#tabs.children[index];
      button.setAttribute("aria-pressed", String(tab === this.#tab));
      const counter = button.querySelector(".count");
      if (!counter) return;
      counter.textContent = count > 999 ? "999+" : count || "";
      counter.hidden = !count;
    });
    // The count of a feed shows on its bell; the others only in an open panel.
    const isShown = document.visibilityState === "visible" && (!close || this.element.checkVisibility());
    if (isFeed || (categories.length && isShown)) this.#inbox.updateCounts(feed.org);
  }

  /** Shows the settings or the list. */
  async showSettings(isShown) {
    this.element.classList.toggle("shows-settings", isShown);
    if (isShown) await this.loadSettings();
    (isShown ? this.back : this.gear).focus();
  }

  /** Loads the settings' own file when they are first shown, and again after a failure. */
  async loadSettings() {
    if (!this.settings) {
      const { texts } = this.#context;
      const script = await loadView().catch(() => null);
      this.settings ??= script && new script.SettingsView(this.#inbox, this.#push, this.#context);
      this.#side.replaceChildren(this.settings?.element ?? h("div", { class: "settings" },
        h("p", { class: "fault", role: "alert" }, texts.preferencesFailed),
        h("button", { type: "button", class: "plain", onclick: () => this.loadSettings() }, texts.tryNow)));
    }
    return this.settings?.load();
  }

  /** Shows the settings of the next user; the last user's view may still wait for answers. */
  #replaceSettings() {
    if (!this.settings) return;
    this.settings = null;
    this.loadSettings();
  }

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
    const { texts } = this.#context;
    const isArchive = this.#tab === "archive";
    this.#title.textContent = isArchive ? texts.archived : texts.notifications;
    this.leave.hidden = !isArchive;
    this.bar.hidden = isArchive;
    // `disabled` would lose the focus.
    this.readAll.setAttribute("aria-disabled", String(!this.#inbox.store.unread));
    this.readAll.hidden = this.#context.isFeed || isArchive;
    this.#showTabs();
    this.#list.render();
  }

  #showState(state) {
    this.element.dataset.state = state;
    if (state === "online") {
      // Load the menus early, so that they open even if the gateway becomes unreachable.
      this.#loadMenu();
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

  /** Shows a toast, with a button if it offers an undo or asks; a question gets the focus. */
  tell(text, action = null) {
    const toast = this.#toast;
    const close = () => toast.classList.remove("shown");
    const wait = () => {
      clearTimeout(this.#timers.toast);
      // It stays while the user points at it or focuses it.
      this.#timers.toast = setTimeout(() => (toast.matches(":hover, :focus-within") ? wait() : close()), Panel.toastTime);
    };
    const run = () => {
      if (toast.matches(":focus-within")) this.#list.scroller.focus({ preventScroll: true });
      button.disabled = true;
      close();
      action.run();
    };
    const button = action && h("button", {
      type: "button", class: action.isQuestion ? "toast-action" : "toast-action undo", onclick: run,
      // The key that led to a question may still be held down.
      onkeydown: (event) => event.repeat && event.preventDefault(),
    }, action.label);
    toast.replaceChildren(h("span", null, text), ...(button ? [button] : []));
    toast.classList.add("shown");
    if (action?.isQuestion) button.focus();
    wait();
  }

  /** Announces an arrival of the feed to screen readers, except in quiet hours. */
  #announce(item) {
    const { feed, texts, words } = this.#context;
    if (!isOfFeed(feed, item)) return;
    // Only the first visible panel of those that share an inbox announces it.
    if (item.silent || this.#inbox.announced === item.id || !this.element.checkVisibility()) return;
    this.#inbox.announced = item.id;
    this.#spoken.textContent = texts.arrived(unmarked(item.title || words.typeName(item.type)));
  }
}
