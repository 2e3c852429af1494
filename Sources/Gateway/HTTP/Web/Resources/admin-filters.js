// Carillon · admin-filters.js
// SPDX-License-Identifier: Apache-2.0

import { Field, select } from "./admin-forms.js";
import { fill } from "./admin-parts.js";
import { statusKinds } from "./admin-words.js";
import { h, readable } from "./dom.js";

let count = 0;

/** A filter by a text that the user types. */
export const textFilter = (name, label, maxlength = 128) => new Field(label, h("input", {
  name, maxlength, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
}));

/** A filter by a moment in the operator's time zone. */
export const momentFilter = (name, label) => new Field(label, h("input", { name, type: "datetime-local", step: "any" }));

/** A filter by the status of notifications. */
export const statusFilter = () => new Field("Status", select("status",
  [["", "Any status"], ...Object.keys(statusKinds).map((status) => [status, readable(status)])]));

/** A form of filters. The URL of the view holds them, so that a link can be shared. */
export class Filters {
  #fields;
  /** The filters in force, as calls and the URL take them. Typed text counts when it is sent. */
  values;

  /**
   * @param {URLSearchParams} query has the filters to begin with; unknown ones are ignored.
   * @param {Field[]} fields
   * @param {() => void} changed is called when the user chooses from a list or sends the form.
   */
  constructor(query, fields, changed, ...buttons) {
    this.#fields = fields;
    for (const { input } of fields) this.#show(input, query.get(input.name) ?? "");
    this.values = this.#read();
    const apply = () => {
      this.values = this.#read();
      changed();
    };
    const isTyped = fields.some(({ input }) => input.localName !== "select");
    this.element = h("form", { class: "filters-form" }, fields.map(({ element }) => element),
      isTyped ? h("button", { type: "submit", class: "plain" }, "Filter") : null, ...buttons);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      apply();
    });
    this.element.addEventListener("change", ({ target }) => { if (target.localName === "select") apply(); });
  }

  #read() {
    return Object.fromEntries(this.#fields.map(({ input }) => [input.name, valueOf(input)]).filter(([, value]) => value));
  }

  /** Offers texts for an input. */
  offer(name, texts) {
    const { input } = this.#fields.find((field) => field.input.name === name);
    if (!input.getAttribute("list")) {
      count += 1;
      input.setAttribute("list", `offers-${count}`);
      input.after(h("datalist", { id: `offers-${count}` }));
    }
    fill(input.list, texts, () => texts.map((text) => h("option", { value: text })));
  }

  #show(input, value) {
    if (input.localName === "select") {
      if ([...input.options].some((option) => option.value === value)) input.value = value;
    } else {
      input.value = input.type === "datetime-local" ? localTime(value) : value;
    }
  }
}

function valueOf({ type, value }) {
  if (type !== "datetime-local") return value.trim();
  return value ? new Date(value).toISOString() : "";
}

/** Returns a moment as an input of the type datetime-local takes it; empty if it is none. */
export function localTime(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return "";
  return new Date(date.getTime() - 60_000 * date.getTimezoneOffset()).toISOString().slice(0, -1).replace(/(:00)?\.000$/, "");
}
