// Carillon · stack.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Tests the package in a browser against a running Carillon, and prints a line for each step.
//
// Reads GATEWAY_URL, SERVICE_TOKEN and CARILLON_BIN, which `deploy/up` writes to .local/env. Also
// reads REACT (a folder with react@18.3.1.js and react-dom@18.3.1.js, such as the one in the Python
// package dash) and VUE (the file vue.esm-browser.js), and skips their steps if they are not set.
// The gateway needs ALLOWED_ORIGINS=*. With the name of a page as an argument, only opens that page
// of the current folder, and prints its title after a notification has come.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { pack } from "./pack.mjs";
import { Browser, serve } from "./tests/browser.mjs";

const { CARILLON_BIN, GATEWAY_URL, REACT, SERVICE_TOKEN, VUE } = process.env;
const folder = dirname(fileURLToPath(import.meta.url));
const run = `web-${Date.now()}`;
const paid = "https://example.com/paid";
const root = "document.querySelector('carillon-inbox')?.shadowRoot";
const isOnline = `${root}?.querySelector('.panel')?.dataset.state === 'online'`;

function tokenOf(user) {
  return execFileSync(join(CARILLON_BIN, "gateway"), ["token", "--user", user], { encoding: "utf8" }).trim();
}

async function notify(user, title) {
  const answer = await fetch(`${GATEWAY_URL}/v1/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${SERVICE_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ id: `${user}:${title}`, user, type: "payment_received", title, url: paid }),
  });
  assert.ok(answer.ok, `${answer.status}: ${await answer.text()}`);
}

/** Returns the pages of the README, with the addresses of this run. */
async function readmePages() {
  const text = await readFile(join(folder, "README.md"), "utf8");
  return [...text.matchAll(/^```html\n([^]*?)^```$/gm)].map((match) => here(match[1]));
}

function here(page) {
  return page.replaceAll("http://127.0.0.1:8080", GATEWAY_URL).replace(/https:[^"]+\/vue\.esm-browser\.js/, "/vue.js");
}

async function title(browser, address, user) {
  await browser.open(`${address}#token=${tokenOf(user)}`);
  await browser.wait("the inbox is online", isOnline);
  await notify(user, "Paid");
  await browser.wait("the title counts", "document.title === '1 unread'");
  return browser.run("return document.title");
}

/** Returns the page's errors and warnings, without those about sockets closed while opening. */
async function complaintsOf(browser) {
  const lines = (await browser.log()).filter((line) => /SEVERE|WARNING|Warning:/.test(line));
  return lines.filter((line) => !line.includes("closed before the connection is established"));
}

async function html(browser) {
  const [page] = await readmePages();
  const address = await serve({ "/index.html": page }, { "/node_modules/carillon-web/": folder });
  assert.equal(await title(browser, `${address}/index.html`, `${run}-html`), "1 unread");
  assert.deepEqual(await complaintsOf(browser), []);
}

async function vue(browser) {
  const page = (await readmePages()).find((one) => one.includes("createApp"));
  const files = { "/index.html": page, "/vue.js": await readFile(VUE) };
  const address = await serve(files, { "/node_modules/carillon-web/": folder });
  const user = `${run}-vue`;
  await browser.open(`${address}/index.html#token=${tokenOf(user)}`);
  await browser.wait("the inbox is online", isOnline);
  await notify(user, "Paid");
  await browser.wait("Vue shows the count", "document.querySelector('output').textContent === '1'");
  assert.deepEqual(await complaintsOf(browser), []);
}

const reactPage = `<!doctype html>
<meta charset="utf-8">
<link rel="icon" href="data:,">
<script src="/react.js"></script>
<script src="/react-dom.js"></script>
<script type="importmap">{"imports": {
  "react": "/react-module.js", "react-dom/client": "/client-module.js",
  "carillon-web/react": "/node_modules/carillon-web/react.js"
}}</script>
<div id="root"></div>
<script type="module" src="/node_modules/carillon-web/tests/react.page.js"></script>
`;

/** Returns a module that exports the members of a classic script's global. */
async function module(name, text) {
  const names = [...new Set([...text.matchAll(/\bexports\.(\w+) =/g)].map((match) => match[1]))];
  return `export const { ${names.join(", ")} } = globalThis.${name};\n`;
}

async function react(browser) {
  const core = await readFile(join(REACT, "react@18.3.1.js"), "utf8");
  const dom = await readFile(join(REACT, "react-dom@18.3.1.js"), "utf8");
  const files = {
    "/index.html": reactPage, "/react.js": core, "/react-dom.js": dom,
    "/react-module.js": await module("React", core), "/client-module.js": await module("ReactDOM", dom),
  };
  const address = await serve(files, { "/node_modules/carillon-web/": folder });
  const user = `${run}-react`;
  const record = () => browser.run("return record");
  const parameters = { url: GATEWAY_URL, token: tokenOf(user), other: tokenOf(`${user}-other`) };
  await browser.open(`${address}/index.html#${new URLSearchParams(parameters)}`);
  await browser.wait("the inbox is online", isOnline);
  await browser.wait("the hook knows the count", "document.querySelector('output').textContent === '0'");
  const first = await record();
  assert.deepEqual([first.opened, first.closed, first.unread], [1, 0, [0]], "one socket despite StrictMode");
  assert.ok(await browser.run(`return ${root}.textContent.includes("Nothing yet")`), "has the prop texts");
  assert.equal(await browser.run("return inbox.current.getAttribute('class')"), "box");
  assert.equal(await browser.run("return inbox.current.firstChild.assignedSlot.name"), "footer");

  for (let round = 1; round <= 5; round++) await browser.run("change({ round: arguments[0] })", round);
  await browser.wait("it has rendered", "document.querySelector('main').dataset.round === '5'");
  await notify(user, "Paid");
  await browser.wait("it arrives", "record.arrivals.length > 0");
  await browser.wait("the hook counts it", "document.querySelector('output').textContent === '1'");
  await browser.wait("renderItem draws it", `${root}.querySelector('.title b')?.textContent === '* Paid'`);
  const second = await record();
  assert.deepEqual(second.arrivals, [[5, "Paid"]], "only the latest handler hears it, once");
  assert.deepEqual([second.opened, second.closed], [1, 0], "renders leave the socket alone");

  await browser.run(`${root}.querySelector('.title').click()`);
  await browser.wait("it is read", "document.querySelector('output').textContent === '0'");
  assert.deepEqual((await record()).opens, [paid]);
  assert.equal(await browser.run("return location.origin"), address, "onOpen kept the page");

  await browser.run("change({ lang: 'de' })");
  await browser.wait("it speaks German", `${root}.querySelector('.gear')?.ariaLabel === 'Einstellungen'`);
  await browser.run("change({ lang: undefined })");
  await browser.wait("lang is gone", "!inbox.current.hasAttribute('lang')");
  await browser.wait("it is online again", isOnline);

  await browser.run("change({ provider: 'other' })");
  await browser.wait("it shows the other user's inbox", `${isOnline} && !${root}.querySelector('.title')`);
  for (const name of ["token", "other", "token"]) await browser.run("change({ provider: arguments[0] })", name);
  await browser.wait("it is the first user's again", `${isOnline} && ${root}.querySelector('.title')`);
  await browser.run("change({ isShown: false })");
  await browser.wait("it is gone", "!document.querySelector('carillon-inbox')");
  const last = await record();
  assert.equal(last.opened, last.closed, "no socket stays open");
  const complaints = await complaintsOf(browser);
  assert.match(complaints.shift(), /tokenProvider changes often/);
  assert.deepEqual(complaints, []);
}

async function main() {
  const browser = await Browser.start();
  try {
    const [page] = process.argv.slice(2);
    if (page) {
      const address = await serve({ [`/${page}`]: here(await readFile(page, "utf8")) }, { "/": process.cwd() });
      console.log(await title(browser, `${address}/${page}`, `${run}-page`));
      return;
    }
    await pack();
    for (const [name, step, needed] of [["page", html, true], ["React", react, REACT], ["Vue", vue, VUE]]) {
      if (needed) await step(browser);
      console.log(needed ? `ok: ${name}` : `skipped: set ${name.toUpperCase()} to test ${name}`);
    }
  } finally {
    await browser.quit();
  }
}

await main();
