// Carillon · inbox-connection.js
// SPDX-License-Identifier: Apache-2.0

import { claim } from "./inbox-client.js";

/**
 * A socket that reconnects, resumes, and renews its token on its own.
 *
 * Fires `frame` with each message of the gateway, and `state`: `online`, `connecting` or `offline`;
 * or, if it does not reconnect, `signedOut` or `displaced` (the user has too many newer
 * connections).
 */
export class Connection extends EventTarget {
  static shortest = 500;
  static longest = 30_000;
  /**
   * Pages do not see the pings that the gateway sends every 25 s, so a probe detects a dead link.
   */
  static probeInterval = 45_000;
  static probePatience = 10_000;

  #client;
  #version;
  #socket = null;
  /** The token of the socket. */
  #token = null;
  #timer = null;
  #probe = null;
  #renewal = null;
  #failures = 0;
  #delay = null;
  #state = "offline";
  #isWanted = false;
  #attempt = 0;
  #hasLogged = false;
  /** Whether the next `sync` is only a part of the inbox, because no version was resumed. */
  #isPartial = false;

  /** Returns a random delay in ms: full jitter spreads retries. */
  static backoff(failures) {
    return Math.random() * Math.min(Connection.longest, Connection.shortest * 2 ** failures);
  }

  /**
   * @param {(ticket: {token: string, user: string}) => number | null} version returns the inbox
   *   version to resume from; null for a full sync.
   */
  constructor(client, version) {
    super();
    this.#client = client;
    this.#version = version;
  }

  get state() { return this.#state; }

  open() {
    if (this.#isWanted) return;
    this.#isWanted = true;
    for (const [target, name] of Connection.#signs()) target.addEventListener(name, this.#look);
    this.#connect();
  }

  close() {
    this.#isWanted = false;
    for (const [target, name] of Connection.#signs()) target.removeEventListener(name, this.#look);
    clearTimeout(this.#timer);
    this.#drop();
    this.#become("offline");
  }

  /** Connects at once instead of waiting for the backoff. */
  retry() {
    if (!this.#isWanted || this.#state === "online") return;
    this.#failures = 0;
    this.#connect();
  }

  send(message) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  static #signs() {
    // React Native has no page.
    if (!globalThis.document) return [];
    const names = ["online", "offline", "focus", "blur", "pagehide", "pageshow"].map((name) => [window, name]);
    return [...names, [document, "visibilitychange"]];
  }

  /** Handles changes of network, visibility and focus. */
  #look = (event) => {
    if (this.#state === "signedOut" || (event.type === "pageshow" && !event.persisted)) return;
    if (event.type === "pagehide") return this.#leave();
    if (event.type === "offline") {
      this.#drop();
      this.#fail();
    } else if (event.type === "online" || (document.visibilityState === "visible" && this.#state !== "connecting")) {
      // Several events report the return to a tab; only the first one connects.
      this.retry();
    }
    this.#tellFocus();
  };

  /** Disconnects: in the back/forward cache an open socket would make the user count as present. */
  #leave() {
    this.#attempt += 1;
    clearTimeout(this.#timer);
    this.#drop();
    this.#become("offline");
  }

  /** Reports whether the user looks at the page; it decides about pushes to other devices. */
  #tellFocus() {
    if (!globalThis.document) return;
    this.send({ type: "focus", active: document.visibilityState === "visible" && document.hasFocus() });
  }

  #become(state) {
    if (this.#state === state) return;
    this.#state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }

  async #connect() {
    clearTimeout(this.#timer);
    this.#drop();
    const attempt = ++this.#attempt;
    this.#become("connecting");
    let ticket;
    try {
      ticket = await this.#client.ticket();
    } catch (error) {
      if (attempt !== this.#attempt) return;
      if (error.kind === "signedOut") return this.#become("signedOut");
      if (error.retryAfter) this.#delay = error.retryAfter * 1000;
      // Not a failed call but a bug, such as scripts of two versions.
      if (!error.kind && !this.#hasLogged) {
        this.#hasLogged = true;
        console.error("carillon:", error);
      }
      return this.#fail();
    }
    if (attempt !== this.#attempt || !this.#isWanted) return;
    const version = this.#version(ticket);
    this.#isPartial = version === null;
    // React Native's `URL` cannot be changed.
    const query = new URLSearchParams({ ticket: ticket.ticket, ...(this.#isPartial || { resume: version }) });
    const socket = new WebSocket(`${this.#client.url.replace(/^http/, "ws")}/v1/socket?${query}`, ["carillon.v1"]);
    this.#socket = socket;
    this.#token = ticket.token;
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code }) => {
      if (socket === this.#socket) this.#closed(code);
    };
    this.#watch();
  }

  #receive(data) {
    const frame = JSON.parse(data);
    this.#watch();
    if (frame.type === "sync") {
      frame.reset ||= this.#isPartial;
      this.#isPartial = false;
    } else if (frame.type === "welcome") {
      this.#failures = 0;
      this.#become("online");
      this.#tellFocus();
      this.#renewInTime(1_000);
    } else if (frame.type === "goodbye") {
      this.#delay = frame.reconnect_after;
    } else if (frame.type === "error") {
      console.warn("carillon:", frame.reason);
      if (frame.ref === "auth" && frame.retry) {
        clearTimeout(this.#renewal);
        this.#renewal = setTimeout(() => this.#sendToken(), Connection.backoff(4));
      } else if (frame.ref === "auth") {
        // The fresh token is another user's, or bad. The next ticket decides.
        this.#drop();
        this.#fail();
      }
    }
    this.dispatchEvent(new CustomEvent("frame", { detail: frame }));
  }

  /**
   * Renews the token one minute before it expires, or at half of its life if that is short.
   *
   * @param {number} least the time in ms that passes first: if the device's clock is ahead, a fresh
   *   token looks expired.
   */
  #renewInTime(least) {
    clearTimeout(this.#renewal);
    const [iat, exp] = ["iat", "exp"].map((name) => claim(this.#token, name));
    if (!exp) return;
    const half = iat ? (exp - iat) * 500 : Infinity;
    const wait = Math.max(1_000, exp * 1_000 - Date.now() - Math.min(60_000, half), Math.min(least, half));
    // A timer runs for at most 24 days.
    this.#renewal = setTimeout(() => this.#renew(), Math.min(wait, 2_000_000_000));
  }

  async #renew() {
    const socket = this.#socket;
    const fresh = await this.#client.token(this.#token).catch(() => null);
    if (socket !== this.#socket || !fresh || fresh === this.#token) return;
    this.#token = fresh;
    this.#sendToken();
  }

  #sendToken() {
    this.send({ type: "auth", token: this.#token, ref: "auth" });
    this.#renewInTime(30_000);
  }

  #watch() {
    clearTimeout(this.#probe);
    this.#probe = setTimeout(() => this.#ask(), Connection.probeInterval);
  }

  #ask() {
    this.send({ type: "unread" });
    this.#probe = setTimeout(() => {
      this.#drop();
      this.#fail();
    }, Connection.probePatience);
  }

  #closed(code) {
    this.#drop();
    if (code === 4409) return this.#become("displaced");
    if (code !== 4401) return this.#fail();
    this.#become("offline");
    const attempt = this.#attempt;
    // The token expired. Fetch a fresh one; without one, the next ticket reports `signedOut`.
    // Another attempt to connect may start meanwhile.
    this.#client.token(this.#token).catch(() => null).then(() => attempt === this.#attempt && this.#fail());
  }

  #fail() {
    if (!this.#isWanted) return;
    this.#become("offline");
    // A delay that the gateway asked for is the minimum.
    const wait = (this.#delay ?? 0) + Connection.backoff(this.#failures++);
    this.#delay = null;
    clearTimeout(this.#timer);
    // Only browsers know whether the network is there.
    if (globalThis.navigator?.onLine !== false) this.#timer = setTimeout(() => this.#connect(), wait);
  }

  #drop() {
    clearTimeout(this.#probe);
    clearTimeout(this.#renewal);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onmessage = socket.onclose = null;
    socket.close();
  }
}
