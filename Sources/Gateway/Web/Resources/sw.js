// Carillon · sw.js
// SPDX-License-Identifier: Apache-2.0

// Shows what Web Push brings, opens what is clicked, and takes off the screen what was read elsewhere.

const mostActions = 2;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  let message = {};
  try {
    message = event.data?.json() ?? {};
  } catch {
    message = { title: event.data?.text() };
  }
  event.waitUntil(message.retract ? retract(message) : show(message));
});

/** Takes away what was read elsewhere. What has taken its place under the same tag is another, and stays. */
async function retract(message) {
  setBadge(message.badge);
  await close([message.retract].flat());
}

async function show(message) {
  const tag = message.tag ?? message.collapse_key ?? message.notification_id;
  setBadge(message.badge);
  const { title, body } = message.notification ?? message;
  const own = {
    body: body ?? "",
    image: safe(message.image) ?? undefined,
    tag,
    renotify: Boolean(tag && message.severity === "alert"),
    timestamp: message.created_at ? Date.parse(message.created_at) : Date.now(),
    data: { id: message.notification_id, url: message.url },
    actions: list(message.actions).slice(0, mostActions).map(({ id, title }) => ({ action: String(id), title: String(title) })),
  };
  const options = message.options instanceof Object ? message.options : {};
  // A click leads by our data, whatever else the sender has in it.
  const whole = { ...own, ...options, data: { ...options.data, ...own.data } };
  // A browser refuses options that do not go together; then it gets ours alone.
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

/** An address on the web; null for everything else. */
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
  event.notification.close();
  event.waitUntil(open(event.notification.data ?? {}, event.action));
});

/** Goes to the page that shows it: one that is open already, if there is one. */
async function open({ id, url }, action) {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const goal = safe(url) ?? self.registration.scope;
  const message = { kind: "carillon-clicked", id, action };
  const page = pages.find((client) => client.url === goal) ?? (url ? null : pages[0]);
  if (!page) {
    await self.clients.openWindow(goal);
    for (const client of pages) client.postMessage(message);
    return;
  }
  await page.focus().catch(() => null);
  page.postMessage(message);
}

self.addEventListener("message", (event) => {
  if (event.data?.kind === "close") event.waitUntil(close(event.data.ids));
});

/** Closes those of some notifications; all of them where `ids` is null. */
async function close(ids) {
  for (const shown of await self.registration.getNotifications()) {
    if (ids === null || ids.includes(shown.data?.id)) shown.close();
  }
}

/** Shows the unread count on the app's icon; without a count it stays as it is. */
function setBadge(badge) {
  const count = Number(badge ?? NaN);
  if (!Number.isFinite(count)) return;
  (count ? navigator.setAppBadge?.(count) : navigator.clearAppBadge?.())?.catch(() => null);
}
