// Carillon · browser_before.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs before the blocks of docs/clients/browser.md: defines the gateway's URL and the token, which
// a test can hold back or replace, and notes the sockets.

const url = process.env.GATEWAY_URL;
let tokenIsFree = Promise.resolve();
const fetchToken = async () => (await tokenIsFree) ?? process.env.USER_TOKEN;

const sockets = [];
globalThis.WebSocket = class extends WebSocket {
  constructor(...details) {
    super(...details);
    sockets.push(this);
  }
};
