// Carillon · admin-letter-form.js
// SPDX-License-Identifier: Apache-2.0

import { Field, showFaults } from "./admin-forms.js";
import { compact, jsonFault, pretty } from "./admin-json.js";
import { h } from "./dom.js";

/** The most fields of an entry. */
const mostFields = 64;
/** Where a replayed job comes from. It is no field of a job, and the letter keeps it. */
const replayField = "carillon:replay";

/** A form that edits the fields of a dead letter, one input each. */
export class LetterForm {
  #orders;
  #rows = [];
  #isSending = false;
  #list = h("div", { class: "letter-inputs" });
  #name;
  #fault = h("p", { class: "fault", role: "alert" });
  #submit = h("button", { type: "submit", class: "primary" }, "Replay with these fields");

  /**
   * @param orders `send(fields)` throws a refusal of the gateway, `cancel()` closes the form, and
   *   `explain(error)` puts an error into words.
   */
  constructor(letter, orders) {
    this.#orders = orders;
    for (const [name, value] of letter.fields) {
      if (name !== replayField) this.#rows.push(new FieldRow(name, value, (row) => this.#remove(row)));
    }
    this.#list.append(...this.#rows.map(({ element }) => element));
    const name = h("input", { name: "new-field", maxlength: 128, spellcheck: "false", autocomplete: "off", autocapitalize: "off" });
    this.#name = new Field("Name of a new field", name);
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.#add();
    });
    this.element = h("form", { class: "letter-form", novalidate: true, "aria-label": `Fields of letter ${letter.id}` },
      this.#list,
      h("div", { class: "row letter-add" }, this.#name.element,
        h("button", { type: "button", class: "plain add-field", onclick: () => this.#add() }, "Add the field")),
      this.#fault,
      h("div", { class: "row" }, this.#submit,
        h("button", { type: "button", class: "plain", onclick: () => orders.cancel() }, "Leave it as it is")));
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
  }

  focus() { (this.#rows[0]?.input ?? this.#name.input).focus(); }

  #add() {
    const name = this.#name.value;
    const known = this.#rows.find((row) => row.name === name);
    this.#name.fault = !name ? "Enter a name." : known ? "A field with this name exists already." : this.#rows.length >= mostFields
      ? `An entry has at most ${mostFields} fields.` : "";
    if (this.#name.fault) return (known ?? this.#name).input.focus();
    const row = new FieldRow(name, "", (one) => this.#remove(one));
    this.#rows.push(row);
    this.#list.append(row.element);
    this.#name.value = "";
    row.input.focus();
  }

  #remove(row) {
    const index = this.#rows.indexOf(row);
    this.#rows.splice(index, 1);
    row.element.remove();
    (this.#rows[Math.min(index, this.#rows.length - 1)]?.removal ?? this.#name.input).focus();
  }

  async #send() {
    if (this.#isSending) return;
    this.#fault.textContent = "";
    for (const row of this.#rows) row.check();
    const faulty = this.#rows.find((row) => row.field.fault);
    if (faulty) return faulty.input.focus();
    this.#isSending = true;
    try {
      await this.#orders.send(this.#rows.map(({ name, value }) => [name, value]));
    } catch (error) {
      this.#fault.textContent = showFaults(error, this.#rows.map(({ field }) => field));
    } finally {
      this.#isSending = false;
    }
  }
}

/** A field of an entry: its name, an input for its value, and a button that removes it. */
class FieldRow {
  #original;
  #shown;

  /** @param value a text; bytes that are not text are an object and cannot be sent. */
  constructor(name, value, remove) {
    const isText = typeof value === "string";
    this.name = name;
    this.#original = value;
    this.#shown = isText ? pretty(name, value) : value.base64 ?? "";
    const rows = Math.min(14, Math.max(1, this.#shown.split("\n").length, Math.ceil(this.#shown.length / 90)));
    this.input = h("textarea", { name, rows, spellcheck: "false", autocapitalize: "off", readonly: !isText });
    this.input.value = this.#shown;
    // The browser has its own line breaks.
    this.#shown = this.input.value;
    this.field = new Field(name, this.input, { hint: isText ? null : "Bytes that are not text, as base64.", names: [name] });
    this.removal = h("button", {
      type: "button", class: "plain remove", "aria-label": `Remove ${name}`, onclick: () => remove(this),
    }, "Remove");
    this.element = h("div", { class: "letter-input", "data-field": name }, this.field.element, this.removal);
  }

  /** The value to send; the original one if the user changed nothing. */
  get value() {
    return this.input.value === this.#shown ? this.#original : compact(this.name, this.input.value);
  }

  /** Shows why the value cannot be sent. The gateway checks JSON that the user did not change. */
  check() {
    const isText = typeof this.#original === "string";
    const fault = isText && this.input.value !== this.#shown ? jsonFault(this.name, this.input.value) : null;
    this.field.fault = isText ? fault ?? "" : "cannot be sent, as it is not text; remove it";
  }
}
