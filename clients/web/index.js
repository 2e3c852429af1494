// Carillon · index.js
// SPDX-License-Identifier: Apache-2.0

// Registers `<carillon-inbox>`, which needs a browser. On a server, import `carillon-web/react`.

export { CarillonInbox } from "./dist/carillon.js";
/** The words of the inbox in English; `texts` of the element replaces those of the same names. */
export { en } from "./dist/web/texts.js";

/** The version of the package and of the server that it comes with. */
export const version = "1.0.0-dev";
