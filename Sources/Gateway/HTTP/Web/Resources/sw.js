// Carillon · sw.js
// SPDX-License-Identifier: Apache-2.0

// The service worker: shows pushes, opens clicked notifications, and closes those that an open page
// reports as read, or all when their user leaves. A worker that imports this one can set
// `self.carillon = { icon, badge }` first.

const mostActions = 2;
/**
 * The cache that holds clicks until a signed-in page reports them, and its limit. Workers in other
 * folders of the site may have other users.
 */
const clickCache = `carillon clicks ${self.registration.scope}`;
const mostClicks = 50;
/** The time in ms that the page in front has to take a click before others hear of it. */
const headStart = 3_000;
/** The gateway's own page registers `sw.js?icons`; other sites set their own icons or none. */
const look = self.carillon ?? (new URL(self.location.href).searchParams.has("icons")
  ? { icon: "web/icon-192.png", badge: "web/badge.png" } : {});

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  let message = {};
  try {
    message = event.data?.json() ?? {};
  } catch {
    message = { title: event.data?.text() };
  }
  event.waitUntil(show(message));
});

async function show(message) {
  const tag = message.tag ?? message.collapse_key ?? message.notification_id;
  setBadge(message.badge);
  const { title, body } = message.notification ?? message;
  const actions = list(message.actions).filter((one) => one?.id && one?.title);
  const own = {
    body: body ?? "",
    icon: safe(look.icon) ?? undefined,
    badge: safe(look.badge) ?? undefined,
    image: safe(message.image) ?? undefined,
    tag,
    renotify: Boolean(tag && message.severity === "alert"),
    timestamp: message.created_at ? Date.parse(message.created_at) : Date.now(),
    // `urls` also marks a notification as ours.
    data: {
      id: message.notification_id, url: message.url,
      urls: Object.fromEntries(actions.map(({ id, url }) => [id, url])),
    },
    actions: actions.slice(0, mostActions).map(({ id, title }) => ({ action: String(id), title: String(title) })),
  };
  const options = message.options instanceof Object ? message.options : {};
  // A click needs our `data`, so the sender's options cannot override it.
  const whole = { ...own, ...options, data: { ...options.data, ...own.data } };
  // If the browser rejects the combined options, use only ours.
  await self.registration.showNotification(title || "Carillon", whole)
    .catch(() => self.registration.showNotification(title || "Carillon", own));
}

function list(value) {
  if (typeof value !== "string") return Array.isArray(value) ? value : [];
  try {
    return list(JSON.parse(value));
  } catch {
    return [];
  }
}

/** Returns an http or https URL, or null for anything else. */
function safe(text) {
  if (!text) return null;
  try {
    const url = new URL(text, self.registration.scope);
    return ["https:", "http:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

self.addEventListener("notificationclick", (event) => {
  if (!isOurs(event.notification)) return;
  event.notification.close();
  event.waitUntil(open(event.notification.data, event.action));
});

/**
 * Focuses an open page, or opens one.
 *
 * Stores the click first, so that a page that opens later can report it.
 */
async function open({ id, url, urls }, action) {
  const click = { kind: "carillon-clicked", id, action };
  const isKept = id && await keepClick(click).then(() => true, warn);
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const { scope } = self.registration;
  const goal = safe(urls?.[action]) ?? safe(url) ?? scope;
  // The operator's page has no inbox.
  const { pathname } = new URL("admin", scope);
  const others = pages.filter((client) => new URL(client.url).pathname !== pathname);
  const inbox = others.find((client) => client.url.startsWith(scope)) ?? others[0];
  const page = pages.find((client) => client.url === goal) ?? (urls?.[action] || url ? null : inbox);
  await (page ? page.focus() : self.clients.openWindow(goal)).catch(() => null);
  // If the storage is full, only an open page can report the click.
  if (id && !isKept) (page ?? inbox)?.postMessage(click);
  const tell = (client) => client?.postMessage({ kind: "carillon-clicks" });
  // A window that was opened asks for its click once it has loaded.
  tell(page);
  // The page in front may have no inbox.
  await new Promise((next) => setTimeout(next, headStart));
  pages.forEach(tell);
}

async function keepClick(click) {
  const cache = await caches.open(clickCache);
  await cache.put(clickAddress(click.id), new Response(JSON.stringify(click)));
  for (const oldest of (await cache.keys()).slice(0, -mostClicks)) await cache.delete(oldest);
}

function clickAddress(id) { return new URL(`carillon-click/${encodeURIComponent(id)}`, self.registration.scope).href; }

/** Hands each click to only one page, so that two tabs do not both act on it. */
let handedOut = Promise.resolve();
function handOutClicks(page) {
  handedOut = handedOut.then(async () => {
    const cache = await caches.open(clickCache);
    for (const request of await cache.keys()) {
      const click = await (await cache.match(request))?.json();
      await cache.delete(request);
      if (click) page.postMessage(click);
    }
  }).catch(warn);
  return handedOut;
}

function warn(error) { console.warn("carillon:", error.message); }

self.addEventListener("message", (event) => {
  if (event.data?.kind === "close") {
    setBadge(event.data.unread);
    event.waitUntil(close(event.data.ids));
  }
  // The user of the pushes has left this browser, or wants no more.
  if (event.data?.kind === "forget") {
    setBadge(0);
    event.waitUntil(Promise.all([close(null), caches.delete(clickCache)]));
  }
  // A page could not report a click.
  if (event.data?.kind === "carillon-clicked") event.waitUntil(keepClick(event.data).catch(warn));
  if (event.data?.kind === "carillon-take-clicks" && event.source) event.waitUntil(handOutClicks(event.source));
});

/** Closes our notifications with these ids, or all of ours if `ids` is null. */
async function close(ids) {
  for (const shown of await self.registration.getNotifications()) {
    if (isOurs(shown) && (ids === null || ids.includes(shown.data.id))) shown.close();
  }
}

/** Whether this worker showed a notification. A worker that imports this one may show its own. */
function isOurs({ data }) { return Boolean(data?.urls); }

/** Sets the badge of the app's icon. Without a count, leaves it unchanged. */
function setBadge(badge) {
  const count = Number(badge ?? NaN);
  if (!Number.isFinite(count)) return;
  (count ? navigator.setAppBadge?.(count) : navigator.clearAppBadge?.())?.catch(() => null);
}
