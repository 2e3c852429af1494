// Carillon · admin-letter.js
// SPDX-License-Identifier: Apache-2.0

import { LetterForm } from "./admin-letter-form.js";
import { pretty } from "./admin-json.js";
import { confirm, fill, pill, when } from "./admin-parts.js";
import { h, readable, set } from "./dom.js";

/** Jobs can be edited before they are replayed, deliveries to a provider cannot. */
const isJob = ({ stream }) => stream === "schedules" || /(^|[:}])(jobs|overflow)(:|$)/.test(stream);

/** A dead letter: its reason and fields, and buttons to replay, edit or discard it. */
export class LetterView {
  #page;
  #letter;
  #form = null;
  #head = h("div", { class: "letter-head" });
  #fields = h("details");
  #edited = h("div", { class: "letter-edit" });
  #replay = h("button", { type: "button", class: "plain replay", onclick: () => this.#replayIt() }, "Replay");
  #edit = h("button", { type: "button", class: "plain edit", "aria-expanded": "false", onclick: () => this.#toggle() }, "Edit and replay");
  #discard = h("button", { type: "button", class: "plain discard", onclick: () => this.#discardIt() }, "Discard");

  constructor(page, letter, isOpen = false) {
    this.#page = page;
    this.#fields.open = isOpen;
    for (const button of [this.#replay, this.#edit, this.#discard]) {
      set(button, { "aria-label": `${button.textContent}: letter ${letter.id}` });
    }
    this.element = h("article", { class: "letter", "data-id": letter.id }, this.#head,
      h("div", { class: "row" }, this.#replay, isJob(letter) ? this.#edit : null, this.#discard), this.#fields, this.#edited);
  }

  get isReplaying() { return Boolean(this.#letter?.replay_at); }

  show(letter) {
    this.#letter = letter;
    this.#replay.disabled = this.#edit.disabled = this.isReplaying;
    if (this.isReplaying) this.#close();
    const type = letter.fields.find(([name]) => name === "type")?.[1];
    fill(this.#head, [letter.reason, letter.replay_at], () => [
      h("p", { class: "reason" }, letter.reason),
      h("p", { class: "hint" }, h("a", { href: `#dead-letters/${letter.id}` }, `Letter ${letter.id}`),
        typeof type === "string" ? ` · ${readable(type)}` : "", " · ", h("code", null, letter.stream), " · ", when(letter.at), " ",
        letter.replay_at ? pill("replaying", "warn") : null),
    ]);
    fill(this.#fields, letter.fields, () => [h("summary", null, "Fields"),
      h("dl", { class: "letter-fields" }, letter.fields.map(([name, value]) =>
        h("div", null, h("dt", null, h("code", null, name)), h("dd", null, shown(name, value)))))]);
  }

  get #path() { return `/v1/admin/dead-letters/${this.#letter.id}`; }

  async #replayIt() {
    await this.#page.perform(() => this.#page.call("POST", `${this.#path}/replay`), "Replaying: it returns to its stream.");
    this.#page.refresh();
  }

  async #discardIt() {
    if (!await confirm("Discard this dead letter?", "This deletes it with all its fields.", "Discard")) return;
    await this.#page.perform(() => this.#page.call("DELETE", this.#path), "Discarded.");
    this.#page.refresh();
  }

  #toggle() {
    if (this.#form) {
      this.#close();
      return;
    }
    this.#form = new LetterForm(this.#letter, {
      explain: this.#page.explain, cancel: () => this.#close(), send: (fields) => this.#send(fields),
    });
    this.#edited.replaceChildren(this.#form.element);
    set(this.#edit, { "aria-expanded": "true" });
    this.#form.focus();
  }

  #close() {
    if (!this.#form) return;
    const hadFocus = this.#edited.contains(document.activeElement);
    this.#form = null;
    this.#edited.replaceChildren();
    set(this.#edit, { "aria-expanded": "false" });
    if (hadFocus) (this.#edit.disabled ? this.#discard : this.#edit).focus();
  }

  /** Sends edited fields. Throws the gateway's refusal, which the form shows. */
  async #send(fields) {
    let refusal = null;
    await this.#page.perform(async () => {
      try {
        await this.#page.call("POST", `${this.#path}/replay`, { fields });
        this.#page.tell("Replaying with your fields.");
        this.#close();
      } catch (error) {
        if (error.kind !== "refused" || error.status === 403) throw error;
        refusal = error;
      }
    });
    if (refusal) throw refusal;
    this.#page.refresh();
  }
}

function shown(name, value) {
  return typeof value === "string" ? pretty(name, value) : `${value.base64?.length ?? 0} characters of base64: ${value.base64}`;
}
