// Carillon · inbox-item.js
// SPDX-License-Identifier: Apache-2.0

import { h, iconButton, readable, safeURL } from "./dom.js";
import { ago, exactly } from "./time.js";

const mostActions = 10;

/** A notification as an entry of the list. */
export class ItemView {
  #context;
  #item = null;

  /**
   * @param context `language`, `texts` and the user's actions: `open`, `act`, `markRead`, `remove`.
   */
  constructor(context) {
    this.#context = context;
    this.element = h("li", { class: "item" });
  }

  /** Shows a notification, and keeps the focus. Does nothing if it is unchanged. */
  show(item) {
    if (item === this.#item) return;
    const hadFocus = this.element.contains(this.element.getRootNode().activeElement);
    const place = hadFocus ? this.element.getRootNode().activeElement.dataset.part : null;
    this.#item = item;
    const { texts } = this.#context;
    this.element.dataset.id = item.id;
    this.element.classList.toggle("unread", !item.read_at);
    this.element.dataset.severity = item.severity;
    this.element.replaceChildren(this.#body(item), this.#tools(item));
    if (hadFocus) (this.element.querySelector(`[data-part="${place}"]`) ?? this.main)?.focus();
    this.main.setAttribute("aria-description", item.read_at ? "" : texts.isUnread);
  }

  /** The element that the arrow keys focus. */
  get main() { return this.element.querySelector('[data-part="main"]'); }

  get item() { return this.#item; }

  #body(item) {
    const { texts } = this.#context;
    const url = safeURL(item.url);
    const title = item.title || readable(item.type);
    const open = (event) => this.#context.open(item, event, url);
    const main = url
      ? h("a", { class: "title", href: url, "data-part": "main", rel: "noopener", onclick: open, onauxclick: open }, title)
      : h("button", { class: "title", type: "button", "data-part": "main", onclick: open }, title);
    const severity = texts.severity[item.severity];
    return h("div", { class: "content" },
      h("p", { class: "about" },
        severity ? h("span", { class: "severity" }, severity) : null,
        h("span", { class: "type" }, readable(item.type)),
        this.#time(item)),
      h("h4", null, main),
      item.body ? h("p", { class: "body" }, item.body) : null,
      this.#image(item),
      this.#actions(item));
  }

  #time(item) {
    const { language, texts } = this.#context;
    return h("time", { datetime: item.created_at, title: exactly(item.created_at, language) },
      ago(item.created_at, language, texts.justNow));
  }

  /** Updates the relative time. */
  tick() {
    const { language, texts } = this.#context;
    const time = this.element.querySelector("time");
    const text = ago(this.#item.created_at, language, texts.justNow);
    if (time && time.textContent !== text) time.textContent = text;
  }

  #image(item) {
    const url = safeURL(item.image);
    if (!url?.startsWith("http")) return null;
    const image = h("img", { src: url, alt: "", loading: "lazy", decoding: "async", referrerpolicy: "no-referrer" });
    image.addEventListener("error", () => image.remove());
    return image;
  }

  #actions(item) {
    const actions = Array.isArray(item.data?.actions) ? item.data.actions.slice(0, mostActions) : [];
    const buttons = actions.filter((action) => action?.id && action?.title).map((action) =>
      h("button", {
        type: "button", class: action.destructive ? "action destructive" : "action", "data-part": `action-${action.id}`,
        onclick: () => this.#context.act(item, action),
      }, String(action.title)));
    return buttons.length ? h("div", { class: "actions" }, buttons) : null;
  }

  #tools(item) {
    const { texts, markRead, remove } = this.#context;
    return h("div", { class: "tools" },
      item.read_at ? null : iconButton("check", texts.markRead, () => markRead(item.id), { "data-part": "read" }),
      iconButton("trash", texts.remove, () => remove(item.id), { "data-part": "remove" }));
  }
}
