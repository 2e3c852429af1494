// Carillon · admin-preview.js
// SPDX-License-Identifier: Apache-2.0

import { Field, segments } from "./admin-forms.js";
import { h } from "./dom.js";
import { avatar, pictureOf } from "./inbox-item.js";
import { sheet } from "./inbox-styles.js";
import { marked } from "./marks.js";
import { Words } from "./words.js";

/** The inputs of a job's text: title, body, the values of the type's own texts, and data. */
export class TextInputs {
  #title;
  #body;
  #vars;
  #data;

  /** @param {URLSearchParams} query has the values to begin with. */
  constructor(query) {
    const json = (name, placeholder) => h("textarea", { name, rows: 3, spellcheck: "false", placeholder });
    this.#title = new Field("Title", h("input", { name: "title", maxlength: 255 }), { wide: true });
    this.#body = new Field("Body", h("textarea", { name: "body", class: "prose", rows: 3, maxlength: 4096 }), { wide: true });
    this.#vars = new Field("Values for the type's texts, as JSON", json("vars", '{"amount": "9 €"}'), {
      hint: "If the type has texts of its own, leave title and body empty.", names: ["vars", "template"],
    });
    this.#data = new Field("Data for apps, as JSON", json("data", '{"invoice": "i9"}'), { hint: "Clients get it unchanged." });
    for (const field of this.fields) field.value = query.get(field.input.name);
  }

  get fields() { return [this.#title, this.#body, this.#vars, this.#data]; }
  get elements() {
    return [this.#title.element, this.#body.element, h("div", { class: "pair wide" }, this.#vars.element, this.#data.element)];
  }
  get isEmpty() { return this.fields.every(({ value }) => !value); }

  /** The values by name, for a link. */
  get values() { return Object.fromEntries(this.fields.map(({ input, value }) => [input.name, value])); }

  set(name, text) { this.fields.find(({ input }) => input.name === name).value = text; }

  /** Returns the members of the job; null if an input has a fault, which it shows. */
  read() {
    for (const field of this.fields) field.fault = "";
    const [vars, data] = [this.#vars.object(), this.#data.object()];
    if (vars === null || data === null) {
      (vars === null ? this.#vars : this.#data).input.focus();
      return null;
    }
    return { title: this.#title.value || undefined, body: this.#body.value || undefined, vars, data };
  }
}

/** The texts of a job as users see them, in each channel; one locale at a time. */
export class Previews {
  #place = h("div", { class: "preview" });
  #locale = null;
  #found = [];
  #item = {};
  /** The icons of types; null before they are known. */
  #words = null;
  element = h("div", { class: "previews" });

  /** Loads the icons of types, once. */
  async load(page) {
    this.#words ??= new Words(await page.call("GET", "/v1/types"));
  }

  /**
   * @param found the previews of an answer of `POST /v1/admin/previews`.
   * @param job the previewed job.
   * @param type its type, of the answer of `GET /v1/admin/catalog`.
   */
  show(found, job, type) {
    this.#found = found;
    this.#item = { severity: type?.severity, category: type?.category, ...job };
    const locales = found.map(({ locale }) => locale);
    if (!locales.includes(this.#locale)) this.#locale = locales[0];
    const choose = (locale) => {
      this.#locale = locale;
      this.#draw();
    };
    this.element.replaceChildren(
      ...(locales.length > 1 ? [segments("Locale", "locale", locales.map((locale) => [locale, localeName(locale)]), this.#locale, choose)] : []),
      this.#place);
    this.#draw();
  }

  clear() {
    this.#found = [];
    this.element.replaceChildren();
  }

  /** The text of the first locale, for a dialog. */
  get text() {
    const [first] = this.#found;
    return first?.in_app ?? first?.push ?? (first?.email ? { title: first.email.subject, body: first.email.text } : null);
  }

  #draw() {
    const shown = this.#found.find(({ locale }) => locale === this.#locale);
    if (!shown) return this.#place.replaceChildren();
    this.#place.lang = shown.locale;
    this.#place.replaceChildren(
      channel("In app", "in_app", shown.in_app && inbox(shown.in_app, this.#item, this.#words ?? new Words())),
      channel("Push", "push", shown.push && banner(shown.push)),
      channel("E-mail", "email", shown.email && mail(shown.email, shown.locale)));
  }
}

/** Returns a locale with its name: `German (de)`. */
export function localeName(locale) {
  try {
    const name = new Intl.DisplayNames([document.documentElement.lang], { type: "language" }).of(locale);
    return name === locale ? locale : `${name} (${locale})`;
  } catch {
    return locale;
  }
}

function channel(title, name, content) {
  return h("section", { class: `preview-channel ${name}`, "data-channel": name },
    h("h3", { lang: document.documentElement.lang }, title),
    content || h("p", { class: "hint", lang: document.documentElement.lang }, "Not on this channel."));
}

const texts = (title, body) => h("div", { class: "sample-text" },
  title ? h("strong", null, marked(title)) : null, body ? h("p", null, marked(body)) : null);

/** An entry of the inbox, whose pictures its own code draws, in its own styles. */
function inbox({ title, body }, item, words) {
  const sample = h("div", { class: "inbox-sample", dir: "auto" },
    texts(title, body), h("span", { class: "sample-time", slot: "time", "aria-hidden": "true" }, "now"));
  const root = sample.attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [sheet];
  root.append(h("div", { class: "item", "data-severity": item.severity },
    avatar(item, words), h("div", { class: "content" }, h("slot"), pictureOf(item, words)), h("slot", { name: "time" })));
  return sample;
}

/** The banner of a phone. */
function banner({ title, body }) {
  return h("div", { class: "phone" }, h("div", { class: "sample push-sample", dir: "auto" },
    h("img", { src: "/web/icon.svg", alt: "", width: 32, height: 32 }),
    // A push has no marks.
    h("div", { class: "sample-text" }, title ? h("strong", null, title) : null, body ? h("p", null, body) : null),
    h("span", { class: "sample-time", "aria-hidden": "true" }, "now")));
}

function mail({ subject, text, html }, locale) {
  const plain = text ? h("pre", { dir: "auto", tabindex: "0" }, text) : h("p", { class: "hint" }, "No text.");
  return h("div", { class: "mail-sample" },
    h("p", { class: "mail-subject", dir: "auto" }, h("span", { class: "spoken" }, "Subject: "), h("strong", null, subject || "No subject")),
    ...(html ? [frame(html, `E-mail, ${localeName(locale)}`), htmlNotes(plain)] : [plain]));
}

function htmlNotes(plain) {
  const lang = document.documentElement.lang;
  return h("div", { class: "mail-notes" },
    // The frame has the page's security policy, which allows no inline styles.
    h("p", { class: "hint", lang }, "Shown without the mail's own colours and sizes."),
    h("details", null, h("summary", { lang }, "Text part"), plain));
}

let policy = null;

/** A mail in a frame that has no origin and runs no script, so any HTML is safe in it. */
function frame(html, title) {
  const element = h("iframe", { class: "mail-frame", sandbox: "", title, referrerpolicy: "no-referrer" });
  policy ??= globalThis.trustedTypes?.createPolicy("carillon", { createHTML: (text) => text });
  element.srcdoc = policy ? policy.createHTML(html) : html;
  return element;
}
