// Carillon · browser.mjs
// SPDX-License-Identifier: Apache-2.0

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { createInterface } from "node:readline";

// Only a failure takes that long.
const patience = 120_000;

/** A headless Chromium, driven over WebDriver. Needs Debian's `chromium` and `chromium-driver`. */
export class Browser {
  #driver;
  #home;
  #session;

  static async start() {
    const browser = new Browser();
    browser.#home = await mkdtemp(join(tmpdir(), "carillon-browser-"));
    browser.#driver = spawn("chromedriver", ["--port=0"], {
      env: { ...process.env, HOME: browser.#home }, stdio: ["ignore", "pipe", "ignore"],
    });
    let port;
    for await (const line of createInterface({ input: browser.#driver.stdout })) {
      port = /started successfully on port (\d+)/.exec(line)?.[1];
      if (port) break;
    }
    browser.#driver.stdout.resume();
    const args = [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--lang=en",
      "--disable-background-networking", `--user-data-dir=${join(browser.#home, "profile")}`,
    ];
    const alwaysMatch = {
      browserName: "chrome", "goog:chromeOptions": { args }, "goog:loggingPrefs": { browser: "ALL" },
    };
    browser.#session = `http://127.0.0.1:${port}`;
    const { sessionId } = await browser.#command("POST", "/session", { capabilities: { alwaysMatch } });
    browser.#session += `/session/${sessionId}`;
    return browser;
  }

  async quit() {
    await this.#command("DELETE", "").catch(() => null);
    this.#driver.kill();
    await once(this.#driver, "exit");
    await rm(this.#home, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  open(url) { return this.#command("POST", "/url", { url }); }

  /** Runs the body of a script in the page, and returns its result. */
  run(script, ...args) { return this.#command("POST", "/execute/sync", { script, args }); }

  /** Waits until an expression is true in the page. */
  async wait(what, expression) {
    for (const end = Date.now() + patience; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 50))) {
      if (await this.run(`return Boolean(${expression})`)) return;
    }
    const page = await this.run("return document.body.innerHTML.slice(0, 500)");
    throw new Error(`${what}: not within ${patience} ms; ${page}\n${(await this.log()).join("\n")}`);
  }

  /** Returns the lines that the page logged since the last call. */
  async log() {
    const entries = await this.#command("POST", "/se/log", { type: "browser" });
    return entries.map(({ level, message }) => `${level} ${message}`);
  }

  async #command(method, path, body) {
    const answer = await fetch(this.#session + path, { method, body: body && JSON.stringify(body) })
      .catch((cause) => { throw new Error(`chromedriver did not answer ${method} ${path}`, { cause }); });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`${value.error}: ${value.message}`);
    return value;
  }
}

const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8" };

/**
 * Serves pages and scripts. Returns the server's address.
 *
 * @param files the content by path.
 * @param folders the folders by the prefix of their URLs.
 */
export async function serve(files, folders = {}) {
  const server = createServer(async (request, response) => {
    const path = normalize(new URL(request.url, "http://localhost").pathname);
    try {
      const below = Object.keys(folders).find((name) => path.startsWith(name));
      const body = files[path] ?? (below && await readFile(join(folders[below], path.slice(below.length))));
      if (body === undefined) throw new Error("not found");
      response.writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  server.unref();
  return `http://127.0.0.1:${server.address().port}`;
}
