// Carillon · carillon.js
// SPDX-License-Identifier: Apache-2.0

import { h, loader, safeURL } from "./web/dom.js";
import { icon } from "./web/icons.js";
import { shareInbox } from "./web/inbox.js";
import { Panel } from "./web/inbox-panel.js";
import { isOfFeed } from "./web/inbox-store.js";
import { later, sheet } from "./web/inbox-styles.js";
import { language } from "./web/texts.js";

/** A constant, because bundlers would add a file for `new URL("…", import.meta.url)`. */
const script = import.meta.url;

// Few pages have a worker. Bundlers follow the name without the query.
const loadPush = loader((again) => (again ? import("./web/inbox-push.js" + again) : import("./web/inbox-push.js")));

/**
 * `<carillon-inbox>`: a bell with a badge and a panel; with `view="page"`, only the panel.
 *
 * Attributes: `token`, `url` (the gateway; default: the origin of this script), `view`, `lang`,
 * `theme` (`light` or `dark`; default: the system's), `category` and `org` (shows only those of
 * this category or organisation), `worker` (for Web Push: the URL of a service worker on the page's
 * own origin).
 *
 * Properties: `tokenProvider`, `texts` (replaces words of the inbox), `renderItem` (draws an
 * entry).
 * Slots: `header`, `footer`, `empty`. Elements with the same gateway and token share one socket.
 *
 * Events: `carillon-unread` ({unread}), `carillon-arrival` (a notification), `carillon-open`
 * ({notification, url}), `carillon-action` ({notification, action}), `carillon-event`
 * ({name, args}) and `carillon-signed-out`. `carillon-open` and `carillon-action` are cancelable.
 */
export class CarillonInbox extends HTMLElement {
  static observedAttributes = ["token", "url", "lang", "view", "worker", "category", "org"];

  #own = { tokenProvider: null, texts: {}, renderItem: null };
  #inbox = null;
  /** Ends this element's use of the inbox. */
  #leave = null;
  /** Web Push for the user of the inbox; null before it is loaded. */
  #push = null;
  #starts = 0;
  #listeners = null;
  #panel = null;
  #root = null;
  #bell = null;
  #popover = null;
  #lastUnread = null;
  /** Takes clicks on pushes, which the service worker keeps until a page is signed in. */
  #clicked = async (event) => {
    const { data } = event;
    const inbox = this.#inbox;
    // Only one of the elements that share an inbox handles clicks.
    if (!inbox || (inbox.speaker ??= this.#panel) !== this.#panel) return;
    if (data?.kind === "carillon-clicks") inbox.takeClicks();
    if (data?.kind !== "carillon-clicked" || !data.id) return;
    // Not for other inboxes of the page: another user's, or this one in another language.
    event.stopImmediatePropagation();
    // A click that goes back to the worker comes again.
    if (!(await inbox.reportClick(data)) || !data.action) return;
    const notification = await inbox.find(data.id) ?? { id: data.id };
    this.#fire("carillon-action", { notification, action: { id: data.action } });
  };

  connectedCallback() {
    if (!this.#root) {
      this.#root = this.attachShadow({ mode: "open" });
      // Constructed sheets work with a Content-Security-Policy that forbids inline styles.
      this.#root.adoptedStyleSheets = [sheet, later.menu, later.settings];
    }
    for (const name of Object.keys(this.#own).filter((one) => Object.hasOwn(this, one))) {
      // The page set it before this script loaded.
      this.#own[name] = this[name];
      delete this[name];
    }
    this.#start();
  }

  disconnectedCallback() { this.#stop(); }

  attributeChangedCallback(name, before, after) {
    if (before !== after) this.#restart();
  }

  #restart() {
    if (!this.#root || !this.isConnected) return;
    this.#stop();
    this.#start();
  }

  /**
   * A function that returns a token, a fresh one if the last was refused or expires soon; may be
   * asynchronous.
   */
  get tokenProvider() { return this.#own.tokenProvider; }
  set tokenProvider(provider) { this.#set("tokenProvider", provider); }

  /** Words that replace those of the inbox, by the names in `texts.js`. */
  get texts() { return this.#own.texts; }
  set texts(texts) { this.#set("texts", texts ?? {}); }

  /**
   * A function that draws a notification: it gets the notification and returns an element, or null
   * for the usual entry.
   */
  get renderItem() { return this.#own.renderItem; }
  set renderItem(render) { this.#set("renderItem", render); }

  #set(name, value) {
    this.#own[name] = value;
    this.#restart();
  }

  /** The unread count; null until it is known. */
  get unread() {
    return this.#inbox?.unread(this.#feed()) ?? null;
  }

  /** Returns the category and the organisation of the attributes. */
  #feed() { return { category: this.getAttribute("category") || null, org: this.getAttribute("org") || null }; }

  get token() { return this.getAttribute("token"); }
  set token(token) {
    if (token) this.setAttribute("token", token);
    else this.removeAttribute("token");
  }

  /** Opens or closes the panel. */
  toggle(isOpen) { this.#popover?.togglePopover(isOpen); }

  /**
   * Ends the pushes to this browser, for a logout: call it while the token is still valid, on the
   * element that has the `worker`; without one, it does nothing. Rejects if the browser may still
   * get pushes.
   */
  async switchPushOff() { if (this.getAttribute("worker")) await (await this.#loadPush()).switchOff(); }

  async #loadPush() {
    const { Push } = await loadPush();
    return (this.#push ??= new Push(this.#inbox.client, this.getAttribute("worker")));
  }

  /** The URL of the gateway: the attribute, or the origin of this script. */
  get gateway() {
    return new URL(this.getAttribute("url") || new URL(".", script), document.baseURI).href;
  }

  /** Takes clicks, and starts push if that is due. */
  #settle() {
    this.#inbox.takeClicks();
    // Errors are logged, or the element has stopped.
    if (this.getAttribute("worker")) this.#loadPush().then((push) => push.startIfDue()).catch(() => {});
  }

  #isPage() { return this.getAttribute("view") === "page"; }

  async #start() {
    const start = ++this.#starts;
    const wanted = this.getAttribute("lang") || document.documentElement.lang || navigator.languages;
    const worker = this.getAttribute("worker");
    const { tag, texts, direction } = await language(wanted, this.#own.texts);
    // The element may have been removed or changed meanwhile.
    if (start !== this.#starts) return;
    const source = this.#own.tokenProvider ?? this.getAttribute("token");
    const { inbox, open, leave } = shareInbox(
      this.gateway, source, tokens(source), [tag, ...navigator.languages].slice(0, 20).join());
    this.#inbox = inbox;
    this.#leave = leave;
    if (worker) inbox.worker = worker;
    const render = this.#own.renderItem && ((item) => this.#own.renderItem(item, { language: tag, texts }));
    const feed = this.#feed();
    this.#panel = new Panel(inbox, worker ? () => this.#loadPush() : null, {
      language: tag, texts, render, feed,
      open: (item, event, url) => this.#open(item, event, url),
      act: (item, action) => this.#act(item, action, texts),
      close: this.#isPage() ? null : () => this.#popover.hidePopover(),
    });
    this.#listen(inbox, texts);
    const frame = h("div", { class: this.#isPage() ? "frame page" : "frame", dir: direction, lang: tag, part: "frame" });
    frame.append(...(this.#isPage() ? [this.#panel.element] : this.#bellAndPopover(texts)));
    this.#root.replaceChildren(frame);
    this.#panel.start();
    this.#showCount(texts);
    if (this.#isPage() && !feed.category && !feed.org) {
      const wide = matchMedia("(min-width: 64rem)");
      const load = () => wide.matches && this.#panel?.loadSettings();
      load();
      wide.addEventListener("change", load, { signal: this.#listeners.signal });
    }
    // Code that creates the element can finish its setup first.
    queueMicrotask(async () => {
      if (start !== this.#starts) return;
      await open();
      if (start !== this.#starts) return;
      // An element that joins a loaded inbox hears no `loaded`.
      this.#settle();
    });
  }

  #listen(inbox, texts) {
    this.#listeners = new AbortController();
    const { signal } = this.#listeners;
    inbox.addEventListener("change", () => this.#showCount(texts), { signal });
    inbox.addEventListener("loaded", () => this.#settle(), { signal });
    inbox.addEventListener("state", ({ detail }) => detail === "online" && this.#settle(), { signal });
    inbox.addEventListener("user", () => {
      this.#push = null;
      this.#settle();
    }, { signal });
    inbox.addEventListener("arrival", ({ detail }) => isOfFeed(this.#feed(), detail) && this.#fire("carillon-arrival", detail), { signal });
    inbox.addEventListener("event", ({ detail }) => this.#fire("carillon-event", detail), { signal });
    inbox.addEventListener("signedOut", () => this.#fire("carillon-signed-out", null), { signal });
    navigator.serviceWorker?.addEventListener("message", this.#clicked, { signal });
  }

  #stop() {
    this.#starts += 1;
    this.#listeners?.abort();
    this.#panel?.stop();
    this.#leave?.();
    this.#leave = this.#panel = this.#inbox = this.#push = null;
    this.#lastUnread = null;
  }

  #bellAndPopover(texts) {
    this.badge = h("span", { class: "badge", part: "badge", "aria-hidden": "true", hidden: true });
    this.#bell = h("button", {
      type: "button", class: "bell", part: "bell", "aria-haspopup": "dialog", "aria-expanded": "false",
      "aria-label": texts.bell(0),
    }, icon("bell"), this.badge);
    this.#popover = h("div", {
      class: "popover", part: "panel", popover: "auto", role: "dialog", "aria-labelledby": "carillon-title", tabindex: "-1",
    }, this.#panel.element);
    this.#bell.popoverTargetElement = this.#popover;
    let hadFocus = false;
    this.#popover.addEventListener("beforetoggle", (event) => {
      if (event.newState === "open") this.#place();
      else hadFocus = this.#popover.contains(this.#root.activeElement);
    });
    this.#popover.addEventListener("toggle", (event) => {
      const isOpen = event.newState === "open";
      this.#bell.setAttribute("aria-expanded", String(isOpen));
      if (isOpen) {
        // A closed panel does not count its tabs.
        this.#panel?.render();
        return this.#popover.focus();
      }
      this.#panel.element.classList.remove("shows-settings");
      if (hadFocus) this.#bell.focus();
    });
    return [this.#bell, this.#popover];
  }

  /** Positions the panel below the bell, on the side that has room. */
  #place() {
    const { bottom, left, right } = this.#bell.getBoundingClientRect();
    const isLeft = left + right < innerWidth;
    const { style } = this.#popover;
    style.setProperty("--top", `${Math.round(bottom + 8)}px`);
    style.setProperty("--left", isLeft ? `${Math.round(Math.max(8, left))}px` : "auto");
    style.setProperty("--right", isLeft ? "auto" : `${Math.round(Math.max(8, document.documentElement.clientWidth - right))}px`);
  }

  #showCount(texts) {
    const { unread } = this;
    if (unread === null || unread === this.#lastUnread) return;
    this.#lastUnread = unread;
    if (this.#bell) {
      this.badge.textContent = unread > 99 ? "99+" : unread;
      this.badge.hidden = unread === 0;
      this.#bell.setAttribute("aria-label", texts.bell(unread));
    }
    this.#fire("carillon-unread", { unread });
  }

  /** Handles a click on a notification: follows the link unless the page cancels the event. */
  #open(item, event, url) {
    if (event.type === "auxclick" && event.button !== 1) return;
    this.#inbox.opened(item.id);
    if (!this.#fire("carillon-open", { notification: item, url })) event.preventDefault();
  }

  /** Handles a button: follows its link, or else the notification's, unless the page cancels it. */
  #act(item, action, texts) {
    this.#inbox.acted(item.id, action.id);
    if (!this.#fire("carillon-action", { notification: item, action })) return;
    const url = safeURL(action.url || item.url);
    if (url) location.assign(url);
    else this.#panel?.tell(texts.noAction(action.title));
  }

  /** Returns false if a listener cancelled the event. */
  #fire(name, detail) {
    return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable: true }));
  }
}

/** Returns the source of tokens: the page's function, or the token until it is refused. */
function tokens(source) {
  return typeof source === "function" ? async (isRefused) => source(isRefused) : async (isRefused) => (isRefused ? null : source);
}

if (!customElements.get("carillon-inbox")) customElements.define("carillon-inbox", CarillonInbox);
