// Carillon · inbox-item.js
// SPDX-License-Identifier: Apache-2.0

import { h, safeURL } from "./dom.js";
import { icon, iconButton, isIcon } from "./icons.js";
import { marked, unmarked } from "./marks.js";
import { ago, exactly } from "./time.js";

const mostActions = 10;

/** A notification as an entry of the list. */
export class ItemView {
  #context;
  #item = null;

  /**
   * @param context `language`, `texts`, `words`, `render` and the user's actions: `open`, `act`,
   *   `markRead`, `markUnread`, `archive`, `restore`, `remove` and `more`.
   */
  constructor(context) {
    this.#context = context;
    this.element = h("li", { class: "item", part: "item" });
  }

  /** Shows a notification, and keeps the focus. Does nothing if it is unchanged. */
  show(item) {
    if (item === this.#item) return;
    const hadFocus = this.element.contains(this.element.getRootNode().activeElement);
    const part = hadFocus ? this.element.getRootNode().activeElement.dataset.part : null;
    this.#item = item;
    const { texts } = this.#context;
    this.element.dataset.id = item.id;
    this.element.classList.toggle("unread", !item.read_at);
    this.element.setAttribute("part", item.read_at ? "item" : "item unread");
    this.element.dataset.severity = item.severity;
    this.element.replaceChildren(avatar(item, this.#context.words), this.#body(item), this.#tools(item));
    if (hadFocus) (this.element.querySelector(`[data-part="${CSS.escape(part)}"]`) ?? this.main)?.focus();
    this.main.setAttribute("aria-description", item.read_at ? "" : texts.isUnread);
  }

  /** The element that the arrow keys focus. */
  get main() { return this.element.querySelector('[data-part="main"]'); }

  get item() { return this.#item; }

  // The content.

  #body(item) {
    const { texts, words } = this.#context;
    const url = safeURL(item.url);
    const open = (event) => this.#context.open(item, event, url);
    const own = this.#own(item);
    const title = own ? [own] : marked(item.title || words.typeName(item.type));
    const more = own ? { "aria-label": unmarked(item.title || words.typeName(item.type)) } : {};
    const main = url
      ? h("a", { class: "title", part: "title", href: url, "data-part": "main", rel: "noopener", onclick: open, onauxclick: open, ...more }, ...title)
      : h("button", { class: "title", part: "title", type: "button", "data-part": "main", onclick: open, ...more }, ...title);
    if (own) return h("div", { class: "content own" }, main);
    const severity = texts.severity[item.severity];
    return h("div", { class: "content" },
      h("p", { class: "about", part: "about" },
        severity ? h("span", { class: "severity" }, severity) : null,
        h("span", { class: "type" }, words.typeName(item.type)),
        this.#time(item)),
      h("h4", null, main),
      item.body ? h("p", { class: "body", part: "body" }, ...marked(item.body)) : null,
      pictureOf(item, words),
      this.#actions(item));
  }

  /** Returns the page's own drawing; null for the usual entry. */
  #own(item) {
    try {
      const own = this.#context.render?.(item);
      return own instanceof Node ? own : null;
    } catch (error) {
      // The page's fault must not stop the list.
      console.error("carillon:", error);
      return null;
    }
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

  #actions(item) {
    const actions = Array.isArray(item.data?.actions) ? item.data.actions.slice(0, mostActions) : [];
    const buttons = actions.filter((action) => action?.id && action?.title).map((action, index) =>
      h("button", {
        type: "button", class: action.destructive ? "action destructive" : index ? "action" : "action first",
        part: "action", "data-part": `action-${action.id}`, onclick: () => this.#context.act(item, action),
      }, String(action.title)));
    return buttons.length ? h("div", { class: "actions" }, buttons) : null;
  }

  // The tools.

  #tools(item) {
    const { archive, isArchive, markRead, markUnread, more, remove, restore, texts } = this.#context;
    const title = unmarked(item.title || this.#context.words.typeName(item.type));
    const tool = (name, label, run, symbol = name) => iconButton(symbol, label, () => run(item.id), { "data-part": name });
    const tools = isArchive()
      ? [tool("restore", texts.restore, restore, "inbox"), tool("remove", texts.remove, remove, "trash")]
      : [
        item.read_at ? tool("unread", texts.markUnread, markUnread) : tool("read", texts.markRead, markRead, "check"),
        tool("archive", texts.archive, archive), tool("remove", texts.remove, remove, "trash"),
        iconButton("more", texts.moreFor(title), (event) => more(item, event.currentTarget), {
          "data-part": "more", "aria-haspopup": "menu", "aria-expanded": "false", title: texts.menu,
        }),
      ];
    return h("div", { class: "tools" }, tools);
  }
}

/** The avatar: who is behind a notification, or its type's icon. */
export function avatar(item, words) {
  const { actor } = words.type(item.type);
  const person = actor ? item.data?.[actor] : item.data?.actor;
  const name = typeof person === "string" ? person : person?.name;
  const face = image(person?.image, "face");
  const shown = face ?? (name ? h("span", { class: "initials" }, initials(String(name))) : symbol(item, words));
  return h("div", { class: "avatar", part: "avatar", "aria-hidden": "true", "data-tint": tint(name ? String(name) : item.type) },
    shown, face || name ? h("span", { class: "avatar-badge" }, symbol(item, words)) : null);
}

/** The picture of a notification, or of its type; null without one. */
export const pictureOf = (item, words) => image(item.image ?? words.type(item.type).image, "picture");

function symbol(item, words) {
  const sign = words.type(item.type).icon ?? words.category(item.category).icon;
  const fallback = item.severity === "info" ? "bell" : "alert";
  if (!sign) return icon(fallback);
  if (isIcon(sign)) return icon(sign);
  return image(sign, "sign") ?? h("span", { class: "emoji" }, sign);
}

/** An image that is replaced if it cannot be loaded; null without a usable URL. */
function image(text, name) {
  const url = /^https?:/.test(text ?? "") ? safeURL(text) : null;
  if (!url) return null;
  const element = h("img", { class: name, src: url, alt: "", loading: "lazy", decoding: "async", referrerpolicy: "no-referrer" });
  element.addEventListener("error", () => element.replaceWith(name === "picture" ? "" : icon("bell")));
  return element;
}

/** Returns the first letters of the first and the last word of a name. */
function initials(name) {
  const words = name.trim().split(/\s+/);
  return [words[0], ...(words.length > 1 ? [words.at(-1)] : [])].map((word) => [...word][0] ?? "").join("").toLocaleUpperCase();
}

/** Returns one of six tints, the same for the same text. */
function tint(text) {
  let hash = 0;
  for (const character of text) hash = (hash * 31 + character.codePointAt(0)) % 6;
  return hash;
}
