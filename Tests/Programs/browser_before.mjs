// Carillon · browser_before.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs before the blocks of docs/clients/browser.md: defines the gateway's URL and the token.

const url = process.env.GATEWAY_URL;
const fetchToken = async () => process.env.USER_TOKEN;
