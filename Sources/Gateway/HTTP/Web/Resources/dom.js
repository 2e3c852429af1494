// Carillon · dom.js
// SPDX-License-Identifier: Apache-2.0

// Builds elements. Text stays text: nothing here parses markup.

const svgNamespace = "http://www.w3.org/2000/svg";

/** Sets attributes and listeners. Null, undefined and false remove an attribute. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

/** Creates an element. */
export function h(name, attributes, ...children) {
  const element = set(document.createElement(name), attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an SVG element. */
export function svg(name, attributes, ...children) {
  const element = set(document.createElementNS(svgNamespace, name), attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const paths = {
  bell: "M12 3a5.5 5.5 0 0 0-5.5 5.5v3.2L4.8 15.2a.9.9 0 0 0 .8 1.3h12.8a.9.9 0 0 0 .8-1.3l-1.7-3.5V8.5A5.5 5.5 0 0 0 12 3ZM9.8 19.2a2.3 2.3 0 0 0 4.4 0M12 3V1.8",
  check: "m5 12.5 4.5 4.5L19 7.5",
  checks: "m2.5 12.5 4 4 8.5-9M11.5 15.8l1 1 9-9.5",
  trash: "M4.5 7h15M9.5 7V5.2c0-.4.3-.7.7-.7h3.6c.4 0 .7.3.7.7V7M6.5 7l.8 11.6c0 .5.5.9 1 .9h7.4c.5 0 1-.4 1-.9L17.500 7M10.300 10.800v5.200M13.700 10.800v5.200",
  close: "m6 6 12 12M18 6 6 18",
  settings: "M4 7h9M17 7h3M4 12h3M11 12h9M4 17h7M15 17h5M15 5v4M9 10v4M13 15v4",
  back: "M19 12H5.500M11 6l-6 6 6 6",
  alert: "M12 8.200v5M12 16.600v.1M10.700 4.300 3.200 17.600c-.6 1 .1 2.200 1.300 2.200h15c1.200 0 1.900-1.200 1.300-2.200L13.300 4.300c-.6-1-2-1-2.600 0Z",
  offline: "M3 3l18 18M8.600 15.400a5 5 0 0 1 6.800 0M5.200 12a9.800 9.800 0 0 1 4.300-2.500M18.800 12a9.800 9.800 0 0 0-4.600-2.600M12 19.300v.1",
  moon: "M19.500 14.500A8 8 0 0 1 9.500 4.500a8 8 0 1 0 10 10Z",
  device: "M8 3.500h8c.8 0 1.500.7 1.500 1.500v14c0 .8-.7 1.500-1.500 1.500H8c-.8 0-1.500-.7-1.500-1.500V5c0-.8.7-1.500 1.500-1.500ZM11 17.500h2",
};

/** Creates an icon, hidden from screen readers: its button needs a label. */
export function icon(name) {
  return svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 24 24", "aria-hidden": "true" },
    svg("path", { d: paths[name] }));
}

/** Creates an icon button with an accessible label. */
export function iconButton(name, label, onclick, attributes) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...attributes },
    icon(name));
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
