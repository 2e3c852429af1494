// Carillon · marks.js
// SPDX-License-Identifier: Apache-2.0

import { h } from "./dom.js";

// Marks begin and end at a word's edge, so `2 ** 3`, `a_b_c` and `__init__` stay as they are.
const pattern = /\*\*(?=\S)([^*]+?)(?<=\S)\*\*|`([^`\n]+)`|(?<![\p{L}\p{N}_])_(?=[^\s_])([^_]+?)(?<=[^\s_])_(?![\p{L}\p{N}_])/gu;

/**
 * Returns a text's nodes: `**bold**`, `_emphasis_` and `` `code` `` as elements, the rest as text.
 */
export function marked(text) {
  const nodes = [];
  let end = 0;
  for (const { 0: all, 1: bold, 2: code, 3: emphasis, index } of text.matchAll(pattern)) {
    nodes.push(text.slice(end, index));
    nodes.push(bold ? h("strong", null, bold) : code ? h("code", null, code) : h("em", null, emphasis));
    end = index + all.length;
  }
  return [...nodes, text.slice(end)].filter((node) => node !== "");
}

/** Returns a text without its marks. */
export function unmarked(text) {
  return text.replace(pattern, (_, bold, code, emphasis) => bold ?? code ?? emphasis);
}
