// Carillon · inbox-pictures.js
// SPDX-License-Identifier: Apache-2.0

import { svg } from "./dom.js";

// The drawings of a list without entries, on a grid of 120 by 96. `fill` takes the panel's raised
// colour, `mark` the accent.
const bell = "M60 22c-11 0-18 8-18 18v9l-6 11c-1 2 0 4 3 4h42c3 0 4-2 3-4l-6-11v-9c0-10-7-18-18-18Z";
const drawings = {
  empty: { fill: [bell], line: [bell, "M53 72c1 4 4 6 7 6s6-2 7-6M60 22v-4"], mark: ["M86 18h9l-9 11h9M99 6h6l-6 8h6"] },
  emptyUnread: {
    fill: ["M24 40 60 18l36 22v38H24Z"], line: ["M24 40 60 18l36 22v38H24ZM24 42l36 22 36-22M24 78l25-21M96 78 71 57"],
    mark: ["m48 40 8 8 16-18"],
  },
  emptyArchive: { fill: ["M26 40h68v40H26Z"], line: ["M22 24h76v16H22ZM26 40h68v40H26Z"], mark: ["M50 54h20"] },
  emptyCategory: { fill: ["M30 18h44l16 16v46H30Z"], line: ["M30 18h44l16 16v46H30ZM74 18v16h16"], mark: ["M42 50h30M42 62h20"] },
  failed: {
    fill: ["M36 66a16 16 0 0 1 2-32 24 24 0 0 1 46-2 17 17 0 0 1 2 34Z"],
    line: ["M36 66a16 16 0 0 1 2-32 24 24 0 0 1 46-2 17 17 0 0 1 2 34"], mark: ["m54 62 12-12M54 50l12 12M60 78v.1"],
  },
  signedOut: {
    fill: ["M38 44h44v36H38Z"], line: ["M38 44h44v36H38ZM46 44v-8a14 14 0 0 1 28 0v8"], mark: ["M60 58v8"],
  },
};

/** Draws the picture of a state. */
export function picture(state) {
  const { fill, line, mark } = drawings[state] ?? drawings.empty;
  const path = (d, name) => svg("path", { d, class: name });
  return svg("svg", { class: "picture", viewBox: "0 0 120 96", "aria-hidden": "true" },
    svg("ellipse", { class: "shade", cx: 60, cy: 88, rx: 36, ry: 4 }),
    ...fill.map((d) => path(d, "fill")), ...line.map((d) => path(d, "line")), ...mark.map((d) => path(d, "mark")));
}
