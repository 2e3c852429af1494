// Carillon · admin-forms.js
// SPDX-License-Identifier: Apache-2.0

import { jsonLoss } from "./admin-json.js";
import { h, set } from "./dom.js";

let count = 0;

/** An input with its label and a place for its fault. */
export class Field {
  /** The names under which the gateway reports faults of this input. */
  #names;
  #fault;

  /** @param {{hint?: string, wide?: boolean, names?: string[]}} options */
  constructor(label, input, { hint = null, wide = false, names = [input.name] } = {}) {
    count += 1;
    const id = `field-${count}`;
    this.input = set(input, { id });
    this.#names = names;
    this.#fault = h("span", { class: "field-fault", id: `${id}-fault`, role: "alert" });
    const help = hint ? h("span", { class: "field-hint", id: `${id}-hint` }, hint) : null;
    set(input, { "aria-describedby": `${help ? `${id}-hint ` : ""}${id}-fault` });
    this.element = h("div", { class: wide ? "field wide" : "field" }, h("label", { for: id }, label), input, help, this.#fault);
  }

  get value() { return this.input.value.trim(); }
  set value(text) { this.input.value = text ?? ""; }

  get fault() { return this.#fault.textContent; }
  set fault(text) {
    if (this.#fault.textContent !== text) this.#fault.textContent = text;
    set(this.input, { "aria-invalid": text ? "true" : null });
  }

  /** Whether the fault of a field, such as `data.amount` or `job.data`, belongs to this input. */
  owns(field) {
    const path = field.replace(/^job\./, "");
    return this.#names.some((name) => path === name || path.startsWith(`${name}.`) || path.startsWith(`${name}[`));
  }

  /**
   * Reads a JSON object; undefined if the input is empty. Shows a fault and returns null if it is
   * something else, or if JavaScript would change it.
   */
  object() {
    if (!this.value) return undefined;
    try {
      const value = JSON.parse(this.value);
      const isObject = value && typeof value === "object" && !Array.isArray(value);
      const fault = isObject ? jsonLoss(this.value) : "Not a JSON object, such as {\"amount\": \"9 €\"}.";
      if (!fault) return value;
      this.fault = fault;
    } catch {
      this.fault = "Not valid JSON.";
    }
    return null;
  }
}

/**
 * Shows each fault of a refused call at its input; returns the text of the others. Moves the focus
 * to the first faulty input, unless `isAsked` is false.
 */
export function showFaults(error, fields, isAsked = true) {
  const others = [];
  let first = null;
  for (const { field, reason } of error.faults ?? []) {
    const owner = fields.find((one) => one.owns(field));
    if (!owner) {
      others.push(`${field}: ${reason}`);
      continue;
    }
    const path = field.replace(/^job\./, "");
    const text = path === owner.input.name ? reason : `${path}: ${reason}`;
    owner.fault = owner.fault ? `${owner.fault} · ${text}` : text;
    first ??= owner;
  }
  if (isAsked) first?.input.focus();
  if (others.length) return others.join(" · ");
  return first ? "" : error.message;
}

/** A choice of one of a few values, as radio buttons in a row. `choices` are [value, text]. */
export function segments(label, name, choices, chosen, changed) {
  count += 1;
  const group = `${name}-${count}`;
  return h("fieldset", { class: "segments" }, h("legend", { class: "spoken" }, label), choices.map(([value, text]) => {
    const radio = h("input", { type: "radio", name: group, value, onchange: () => changed(value) });
    radio.checked = value === chosen;
    return h("label", null, radio, h("span", null, text));
  }));
}

/** A select of [value, text]; keeps a chosen value that is not among them. */
export function select(name, choices, chosen = "") {
  return offer(h("select", { name }), choices, chosen);
}

/** Replaces the choices of a select; without a chosen value, the first is chosen. */
export function offer(element, choices, chosen = "") {
  const isKnown = choices.some(([value]) => value === chosen);
  const all = isKnown || !chosen ? choices : [...choices, [chosen, chosen]];
  element.replaceChildren(...all.map(([value, text]) => h("option", { value }, text)));
  element.value = chosen || (all[0]?.[0] ?? "");
  return element;
}

/** Returns types of the catalog as choices of a select. */
export const typeChoices = (types) => types.map(({ name, title }) => [name, title ? `${title} (${name})` : name]);

/** Returns the URL of a view with the inputs that are not empty. */
export function address(path, values) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
  return `#${path}${query ? `?${query}` : ""}`;
}

/** An input that is valid only once the user has typed `wanted`, for a dialog. */
export function typingField(prompt, wanted) {
  const input = h("input", { name: "typed", required: true, autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  // Digits may be grouped, as in 12,345.
  const plain = (text) => (/^\d+$/.test(wanted) ? text.replace(/[\s.,'’]/g, "") : text.trim());
  input.addEventListener("input", () => input.setCustomValidity(plain(input.value) === wanted ? "" : `Type ${wanted} to go on.`));
  return new Field(prompt, input);
}
