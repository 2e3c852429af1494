// Carillon · inbox-push.js
// SPDX-License-Identifier: Apache-2.0

/**
 * Web Push in this browser: subscribes, registers the subscription as a device, and undoes both.
 *
 * `state` is `unsupported`, `unavailable` (not configured at the gateway), `denied`, `on` or `off`.
 */
export class Push {
  #client;
  #worker;

  /** @param {string} worker the URL of the service worker, on the page's own origin. */
  constructor(client, worker) {
    this.#client = client;
    this.#worker = worker;
  }

  get isSupported() {
    return "serviceWorker" in navigator && "PushManager" in globalThis
      && "Notification" in globalThis;
  }

  async state() {
    if (!this.#worker) return "unavailable";
    if (!this.isSupported) return "unsupported";
    if (!(await this.#key())) return "unavailable";
    if (Notification.permission === "denied") return "denied";
    return (await this.#subscription()) ? "on" : "off";
  }

  /** Registers the service worker, which also closes notifications that were read elsewhere. */
  async register() {
    if (!this.#worker || !("serviceWorker" in navigator)) return null;
    return navigator.serviceWorker.register(trusted(this.#worker), { updateViaCache: "none" });
  }

  /** Asks for permission, subscribes, registers, and reports the outcome to the gateway. */
  async switchOn() {
    const permission = await Notification.requestPermission();
    this.#report("permission", permission === "default" ? "dismissed" : permission);
    if (permission !== "granted") return this.state();
    try {
      const registration = (await this.register()) && (await navigator.serviceWorker.ready);
      const subscription = await this.#subscribe(registration, await this.#key());
      await this.#client.call("POST", "/v1/devices", {
        platform: "web", token: JSON.stringify(subscription), device_id: deviceID(), name: browserName(),
        locale: navigator.language,
      });
    } catch (error) {
      this.#report("registration", "failed", `${error.name}: ${error.message}`.slice(0, 200));
      throw error;
    }
    return "on";
  }

  async #subscribe(registration, key) {
    const applicationServerKey = bytes(key);
    const known = await registration.pushManager.getSubscription();
    if (known && !isSame(known.options.applicationServerKey, applicationServerKey)) await known.unsubscribe();
    return registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  }

  async switchOff() {
    if (!this.isSupported) return "unsupported";
    const subscription = await this.#subscription();
    await subscription?.unsubscribe();
    try {
      await this.#client.call("DELETE", `/v1/devices/current?device_id=${encodeURIComponent(deviceID())}`);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    return "off";
  }

  async #subscription() {
    const registration = await navigator.serviceWorker.getRegistration();
    return registration?.pushManager.getSubscription() ?? null;
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
    this.#client.call("POST", "/v1/client-reports", { kind, outcome, provider: "webpush", reason })
      .catch((error) => console.warn("carillon:", error.message));
  }
}

/** Wraps the worker's URL for pages whose Content-Security-Policy requires Trusted Types. */
function trusted(worker) {
  policy ??= globalThis.trustedTypes?.createPolicy("carillon", { createScriptURL: (url) => url });
  return policy ? policy.createScriptURL(worker) : worker;
}

let policy = null;

function bytes(base64URL) {
  const text = atob(base64URL.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

function isSame(buffer, other) {
  const array = new Uint8Array(buffer ?? []);
  return array.length === other.length && array.every((byte, index) => byte === other[index]);
}

/** Identifies this browser, so that a new subscription replaces the old one. */
function deviceID() {
  const name = "carillon.device";
  let id = localStorage.getItem(name);
  if (!id) localStorage.setItem(name, (id = `web-${crypto.randomUUID()}`));
  return id;
}

function browserName() {
  const brands = navigator.userAgentData?.brands?.map((brand) => brand.brand).filter((brand) => !/Not.?A.?Brand/i.test(brand));
  const browser = brands?.find((brand) => brand !== "Chromium") ?? brands?.[0]
    ?? /(Firefox|Edg|Chrome|Safari)/.exec(navigator.userAgent)?.[1] ?? "Browser";
  const system = navigator.userAgentData?.platform ?? navigator.platform;
  return `${browser}${system ? `, ${system}` : ""}`.slice(0, 128);
}
