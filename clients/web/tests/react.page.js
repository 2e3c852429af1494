// Carillon · react.page.js
// SPDX-License-Identifier: Apache-2.0

// The page on which `stack.mjs` tests the React component. `record` counts its events.

import { createElement as h, StrictMode, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { CarillonInbox, useUnread } from "carillon-web/react";

const parameters = new URLSearchParams(location.hash.slice(1));
const record = { opened: 0, closed: 0, unread: [], arrivals: [], opens: [] };

globalThis.record = record;
globalThis.WebSocket = class extends WebSocket {
  constructor(...all) {
    super(...all);
    record.opened += 1;
  }

  close() {
    record.closed += 1;
    super.close();
  }
};

const providers = { token: async () => parameters.get("token"), other: async () => parameters.get("other") };

function App() {
  const inbox = useRef(null);
  const [state, set] = useState({ isShown: true, lang: "en", provider: "token", round: 0 });
  const unread = useUnread();
  const change = (part) => set((before) => ({ ...before, ...part }));
  Object.assign(globalThis, { change, inbox });
  // Everything but the token provider is inline, as apps write it.
  return h("main", { "data-round": state.round }, h("output", null, `${unread}`), state.isShown && h(CarillonInbox, {
    ref: inbox, url: parameters.get("url"), tokenProvider: providers[state.provider],
    view: "page", lang: state.lang, className: "box",
    texts: { emptyTitle: "Nothing yet" },
    renderItem: ({ title }) => Object.assign(document.createElement("b"), { textContent: `* ${title}` }),
    onUnread: ({ detail }) => record.unread.push(detail.unread),
    onArrival: ({ detail }) => record.arrivals.push([state.round, detail.title]),
    onOpen: (event) => {
      event.preventDefault();
      record.opens.push(event.detail.url);
    },
  }, h("small", { slot: "footer" }, "the footer")));
}

createRoot(document.getElementById("root")).render(h(StrictMode, null, h(App)));
