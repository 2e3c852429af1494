// Carillon · inbox-push.js
// SPDX-License-Identifier: Apache-2.0

import { Client } from "./inbox-client.js";

/**
 * Web Push in this browser: subscribes, registers the subscription as a device, and undoes both.
 *
 * `state` is `unsupported`, `unavailable` (not configured at the gateway), `denied`, `on` or `off`.
 */
export class Push {
  /** The time between registrations, in ms. A device that does not register again becomes stale. */
  static renewal = 86_400_000;

  #client;
  #worker;
  /** The time of the last start that has not failed. */
  #startedAt = 0;

  /** @param {string} worker the URL of the service worker, on the page's own origin. */
  constructor(client, worker) {
    this.#client = client;
    this.#worker = worker;
  }

  /** The worker's folder, which has one subscription, whichever of its files is the worker. */
  get #scope() { return new URL("./", new URL(this.#worker, document.baseURI)).href; }

  /** The name in `localStorage` of the device's id. */
  get #deviceName() { return `carillon.device ${this.#scope}`; }

  /**
   * The name in `localStorage` of the last registration: its `owner`, `endpoint` and time `at`, 0
   * until the gateway has confirmed it; `{}` once that has ended.
   */
  get #registrationName() { return `carillon.registration ${this.#scope}`; }

  get isSupported() {
    return "serviceWorker" in navigator && "PushManager" in globalThis
      && "Notification" in globalThis;
  }

  async state() {
    if (!this.isSupported) return "unsupported";
    if (!(await this.#key())) return "unavailable";
    if (Notification.permission === "denied") return "denied";
    return (await this.#renew()) ? "on" : "off";
  }

  /**
   * Registers the service worker, which also closes notifications that an open page reports as
   * read, and registers the device again if that is due, or ends the pushes of another user.
   *
   * Returns false if the last two failed: call it again when the connection is back.
   */
  async start() {
    if (!("serviceWorker" in navigator)) return true;
    await this.#register().catch(warn);
    return !this.isSupported || (await this.#renew()) !== null;
  }

  /** Starts, unless that succeeded less than `renewal` ago: a page may stay open for months. */
  async startIfDue() {
    if (Math.abs(Date.now() - this.#startedAt) < Push.renewal) return;
    this.#startedAt = Date.now();
    if (!(await this.start())) this.#startedAt = 0;
  }

  /** Returns the registration of the worker once the worker is active. */
  async #register() {
    const registration = await navigator.serviceWorker.register(trusted(this.#worker), { updateViaCache: "none" });
    // `navigator.serviceWorker.ready` would wait for a worker that covers the page; ours may not.
    if (!registration.active) await activation(registration.installing ?? registration.waiting);
    return registration;
  }

  /** Asks for permission, subscribes, registers, and reports the outcome to the gateway. */
  async switchOn() {
    const permission = await Notification.requestPermission();
    this.#report("permission", permission === "default" ? "dismissed" : permission);
    if (permission !== "granted") return this.state();
    try {
      await alone(() => this.#enrol());
    } catch (error) {
      this.#report("registration", "failed", `${error.name}: ${error.message}`.slice(0, 200));
      throw error;
    }
    return "on";
  }

  /** Subscribes with the current key, and registers the subscription as a device of the user. */
  async #enrol() {
    const registration = await inTime(this.#register());
    const key = await this.#key();
    if (!key) throw new Error("the gateway has no key for Web Push");
    const subscription = await inTime(this.#subscribe(registration, key));
    // The page may log the user out during the call.
    const owner = await this.#client.user();
    const { endpoint } = subscription;
    const last = this.#noted();
    // If the answer is lost, the device may be registered: a later start must renew or end it.
    this.#note({ owner, endpoint, at: 0 });
    try {
      await this.#client.call("POST", "/v1/devices", {
        platform: "web", token: JSON.stringify(subscription), device_id: this.#deviceID(), name: browserName(),
        locale: navigator.language,
      });
    } catch (error) {
      // A refused call has changed nothing.
      if (error.kind === "signedOut" || (error.status >= 400 && error.status < 500)) this.#note(last);
      throw error;
    }
    this.#note({ owner, endpoint, at: Date.now() });
  }

  async #subscribe(registration, key) {
    const applicationServerKey = bytes(key);
    const known = await registration.pushManager.getSubscription();
    if (known && !hasKey(known, key)) await known.unsubscribe();
    return registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  }

  /**
   * Returns whether this browser gets the user's pushes, after registering it again if that is due;
   * null if that fails.
   */
  async #renew() {
    try {
      return await alone(() => this.#renewIfDue());
    } catch (error) {
      warn(error);
      return null;
    }
  }

  async #renewIfDue() {
    if (!(await this.#client.token())) return null;
    const owner = await this.#client.user();
    const subscription = await (await this.#registration())?.pushManager.getSubscription();
    const last = this.#noted();
    if (last.owner !== owner) {
      // The next user of this browser must not get the pushes of the last.
      if (last.owner) await this.#end();
      return false;
    }
    if (Notification.permission !== "granted") return false;
    const isDue = !(Math.abs(Date.now() - last.at) < Push.renewal);
    // Browsers also end or replace subscriptions on their own, and the gateway's key may change.
    const isCurrent = !isDue && subscription?.endpoint === last.endpoint && hasKey(subscription, await this.#key());
    if (!isCurrent) await this.#enrol();
    return true;
  }

  async switchOff() {
    if (!this.isSupported) return "unsupported";
    await alone(async () => {
      await this.#end();
      const id = localStorage.getItem(this.#deviceName);
      if (id) await this.#remove(id);
    });
    return "off";
  }

  /** Ends the subscription; its pushes, the waiting clicks and the badge go, too. */
  async #end() {
    const registration = await this.#registration();
    await (await registration?.pushManager.getSubscription())?.unsubscribe();
    this.#note({});
    registration?.active?.postMessage({ kind: "forget" });
  }

  async #remove(id) {
    try {
      await this.#client.call("DELETE", `/v1/devices/current?device_id=${encodeURIComponent(id)}`);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }

  /** Returns the registration of the worker; null before it is registered. */
  async #registration() {
    const registration = await navigator.serviceWorker.getRegistration(this.#scope);
    // Before the worker is registered, a worker of a folder above may cover its own.
    return registration?.scope === this.#scope ? registration : null;
  }

  /** Identifies this device, so that a new subscription replaces the old one. */
  #deviceID() {
    let id = localStorage.getItem(this.#deviceName);
    if (!id) localStorage.setItem(this.#deviceName, (id = `web-${crypto.randomUUID()}`));
    return id;
  }

  #note(registration) {
    try {
      // Remove it first: if the storage is full, no outdated registration remains.
      localStorage.removeItem(this.#registrationName);
      localStorage.setItem(this.#registrationName, JSON.stringify(registration));
    } catch (error) {
      warn(error);
    }
  }

  /** Returns the last registration; `{}` if none was noted. */
  #noted() {
    try {
      return JSON.parse(localStorage.getItem(this.#registrationName)) ?? {};
    } catch {
      return {};
    }
  }

  async #key() {
    try {
      return (await this.#client.call("GET", "/v1/web-push/key")).key;
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }

  #report(kind, outcome, reason) {
    this.#client.call("POST", "/v1/client-reports", { kind, outcome, provider: "webpush", reason }).catch(warn);
  }
}

/** Wraps the worker's URL for pages whose Content-Security-Policy requires Trusted Types. */
function trusted(worker) {
  policy ??= globalThis.trustedTypes?.createPolicy("carillon", { createScriptURL: (url) => url });
  return policy ? policy.createScriptURL(worker) : worker;
}

let policy = null;

/** Waits until an installed worker is active. */
function activation(worker) {
  return new Promise((done, fail) => {
    const look = () => {
      if (worker.state === "activated") done();
      if (worker.state === "redundant") fail(new Error("the service worker could not be installed"));
    };
    worker.addEventListener("statechange", look);
    look();
  });
}

/**
 * Runs a task while no other element or tab runs one, so that no renewal undoes a switch-off.
 *
 * Every browser that runs the element has locks.
 */
function alone(task) { return navigator.locks.request("carillon.push", task); }

/**
 * Fails if the browser takes longer than a call may.
 *
 * If a network blocks the push service, a subscription may never end, and would block a switch-off.
 */
function inTime(promise) {
  const late = new Promise((_, fail) => setTimeout(fail, Client.patience, new Error("the browser took too long")));
  return Promise.race([promise, late]);
}

function warn(error) { console.warn("carillon:", error.message); }

function bytes(base64URL) {
  const text = atob(base64URL.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

/** Whether a subscription uses this key of a gateway; null means no key. */
function hasKey({ options }, key) {
  const own = new Uint8Array(options.applicationServerKey ?? []);
  const other = bytes(key ?? "");
  return own.length === other.length && own.every((byte, index) => byte === other[index]);
}

function browserName() {
  const brands = navigator.userAgentData?.brands?.map((brand) => brand.brand).filter((brand) => !/Not.?A.?Brand/i.test(brand));
  const browser = brands?.find((brand) => brand !== "Chromium") ?? brands?.[0]
    ?? /(Firefox|Edg|Chrome|Safari)/.exec(navigator.userAgent)?.[1] ?? "Browser";
  const system = navigator.userAgentData?.platform ?? navigator.platform;
  return `${browser}${system ? `, ${system}` : ""}`.slice(0, 128);
}
