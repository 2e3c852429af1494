// Carillon · words.js
// SPDX-License-Identifier: Apache-2.0

import { readable } from "./dom.js";

/** The names, descriptions and icons of types and categories, from the catalog. */
export class Words {
  #types = new Map();
  #categories = new Map();

  /** @param answer of `GET /v1/types`, or null before it is known. */
  constructor(answer = null) {
    for (const type of answer?.types ?? []) this.#types.set(type.type, type);
    for (const category of answer?.categories ?? []) this.#categories.set(category.category, category);
  }

  type(name) { return this.#types.get(name) ?? {}; }
  category(name) { return this.#categories.get(name) ?? {}; }

  typeName(name) { return this.type(name).title ?? readable(name); }
  categoryName(name) { return this.category(name).title ?? readable(name); }

  /** The names of all categories, by title. */
  get categories() {
    return [...this.#categories.keys()].sort((one, other) => this.categoryName(one).localeCompare(this.categoryName(other)));
  }
}
