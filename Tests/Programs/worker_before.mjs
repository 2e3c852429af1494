// Carillon · worker_before.mjs
// SPDX-License-Identifier: Apache-2.0
//
// The parts of a service worker that docs/clients/browser.md uses.

const worker = { listeners: {}, shown: [], pages: [] };
globalThis.self = {
  location: new URL("https://shop.example.com/sw.js"),
  registration: { showNotification: async (title, options) => worker.shown.push({ title, ...options }) },
  clients: { openWindow: async (address) => worker.pages.push(new URL(address)) },
  addEventListener: (type, listener) => { worker.listeners[type] = listener; },
};
