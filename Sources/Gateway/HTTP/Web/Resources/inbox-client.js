// Carillon · inbox-client.js
// SPDX-License-Identifier: Apache-2.0

/** A failed call. `kind` is `signedOut`, `unreachable` or `refused`; the last has a `status`. */
export class CallError extends Error {
  constructor(kind, message, { status = 0, retryAfter = null, faults = [] } = {}) {
    super(message);
    Object.assign(this, { kind, status, retryAfter, faults });
  }
}

/** Calls a gateway as one user. */
export class Client {
  static patience = 15_000;

  #getToken;
  #token = null;
  /** The request for a token that is not answered yet. */
  #fetching = null;
  /** The last request for a ticket. */
  #ticket = null;

  /**
   * @param {string} url the gateway; in a page it may be relative.
   * @param {(isRefused: boolean) => (string | null | Promise<string | null>)} getToken returns a
   *   token within `patience`; called again when the last one was refused or expires soon.
   */
  constructor(url, getToken) {
    this.url = String(new URL(url, globalThis.document?.baseURI)).replace(/\/+$/, "");
    this.#getToken = getToken;
  }

  /** Returns a token, a fresh one if the last is `refused`; concurrent calls share one request. */
  async token(refused = null) {
    if (this.#token && this.#token !== refused) return this.#token;
    this.#fetching ??= this.#fetch(refused !== null).finally(() => { this.#fetching = null; });
    return this.#fetching;
  }

  async #fetch(isRefused) {
    // A page that never answers would block each call that waits for the token.
    const late = new Promise((_, fail) => setTimeout(fail, Client.patience, "no token in time"));
    this.#token = (await Promise.race([this.#getToken(isRefused), late]).catch(unreachable)) || null;
    return this.#token;
  }

  /** Returns a new `ticket` for a socket, with its `token` and the `user` of that token. */
  ticket() { return (this.#ticket = this.#issue()); }

  async #issue() {
    const token = await this.token();
    const answer = await this.call("POST", "/v1/socket-tickets");
    // The call may have needed a fresh token, which may be another user's.
    return token === this.#token ? { ...answer, token } : this.#issue();
  }

  /** Returns the user of the token. Only the gateway knows which claim names the user. */
  async user() {
    const last = await this.#ticket?.catch(() => null);
    return (last?.token === await this.token() ? last : await this.ticket()).user;
  }

  /**
   * Calls the gateway and returns the JSON of the answer, or null if it has no body.
   *
   * A change that was sent goes on if the page is left.
   */
  async call(method, path, body) {
    const token = await this.token();
    if (!token) throw new CallError("signedOut", "no token");
    let answer = await this.#send(method, path, body, token);
    if (answer.status === 401) {
      const fresh = await this.token(token);
      // A server that signs twice in a second gives the same token twice.
      const isRecent = Math.abs(Date.now() / 1000 - claim(token, "iat")) < 5;
      if (!fresh || (fresh === token && !isRecent)) throw new CallError("signedOut", "the token was refused");
      // If this one is refused too, a later call may succeed: gateways read a new key with a delay.
      answer = await this.#send(method, path, body, fresh);
    }
    const text = await answer.text().catch(unreachable);
    let value = null;
    try {
      value = text ? JSON.parse(text) : null;
    } catch {
      throw new CallError("refused", "the answer is not JSON", { status: answer.status });
    }
    if (answer.ok) return value;
    throw new CallError("refused", value?.detail ?? answer.statusText, {
      status: answer.status,
      retryAfter: Number(answer.headers.get("retry-after")) || null,
      faults: value?.errors ?? [],
    });
  }

  #send(method, path, value, token) {
    const body = JSON.stringify(value);
    const headers = { authorization: `Bearer ${token}`, ...(body && { "content-type": "application/json" }) };
    return fetch(this.url + path, {
      method,
      headers,
      body,
      // React Native has no cache, and would add a parameter to the query instead.
      ...(globalThis.document && { cache: "no-store" }),
      credentials: "omit",
      referrerPolicy: "no-referrer",
      // Browsers refuse to keep calls of more than 64 KB alive.
      keepalive: method !== "GET" && !(body?.length > 16_000),
      signal: AbortSignal.timeout?.(Client.patience) ?? timeout(),
    }).catch(unreachable);
  }
}

/** Does the same as `AbortSignal.timeout`, which React Native lacks. */
function timeout() {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), Client.patience);
  return controller.signal;
}

function unreachable(error) { throw new CallError("unreachable", String(error?.message ?? error)); }

/** Returns a claim of a token without verifying the token; only the gateway can do that. */
export function claim(token, name) {
  try {
    const part = token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const bytes = Uint8Array.from(atob(part), (character) => character.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes))[name];
  } catch {
    return undefined;
  }
}
