// Carillon · browser_before.mjs
// SPDX-License-Identifier: Apache-2.0
//
// What the page docs/clients/browser.md takes for granted, before its blocks: where the gateway is, and who asks.

const url = process.env.GATEWAY_URL;
const fetchToken = async () => process.env.USER_TOKEN;
