// Carillon · dom.js
// SPDX-License-Identifier: Apache-2.0

// Builds elements. Text stays text: nothing here parses HTML.

const svgNamespace = "http://www.w3.org/2000/svg";

/** Sets attributes and listeners. Null, undefined and false remove an attribute. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if ((value ?? false) === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

/** Creates an element. */
export function h(name, attributes, ...children) {
  const element = set(document.createElement(name), attributes);
  element.append(...children.flat().filter((child) => (child ?? false) !== false));
  return element;
}

/** Creates an SVG element. */
export function svg(name, attributes, ...children) {
  const element = set(document.createElementNS(svgNamespace, name), attributes);
  element.append(...children.flat().filter((child) => (child ?? false) !== false));
  return element;
}

/**
 * Formats the name of a type or category for people: `payment_received` and `PaymentReceived`
 * become `Payment received`. Returns a name with spaces unchanged.
 */
export function readable(name) {
  if (/\s/.test(name)) return name;
  const words = String(name).replace(/([a-z0-9])([A-Z])/g, "$1 $2").split(/[^\p{L}\p{N}]+/u).filter(Boolean)
    .map((word) => (/^\p{Lu}{2,}$/u.test(word) ? word : word.toLowerCase()));
  const text = words.join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * Returns a function that loads a script with `load`.
 *
 * Most browsers never fetch a script again that failed to load. So `load` gets a new query for the
 * URL after each failure, and 0 before the first.
 */
export function loader(load) {
  let failures = 0;
  return () => load(failures && `?again=${failures}`).catch((error) => {
    failures += 1;
    console.warn("carillon:", error.message);
    throw error;
  });
}

/** Returns the URL if its scheme is http, https, mailto or tel; otherwise null. */
export function safeURL(text, base = document.baseURI) {
  if (!text) return null;
  try {
    const url = new URL(text, base);
    return ["https:", "http:", "mailto:", "tel:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
