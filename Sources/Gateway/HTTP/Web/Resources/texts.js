// Carillon · texts.js
// SPDX-License-Identifier: Apache-2.0

/** The words of the inbox in English; the other languages have the same keys. */
export const en = {
  notifications: "Notifications",
  bell: (unread) => (unread ? `Notifications, ${unread} unread` : "Notifications"),
  all: "All", unread: "Unread",
  markAllRead: "Mark all as read", markRead: "Mark as read", remove: "Delete", removeRead: "Delete all read notifications",
  loadMore: "Show older", loading: "Loading…", justNow: "now", isUnread: "Unread",
  severity: { alert: "Urgent", warning: "Warning", info: "" },
  emptyTitle: "All quiet", emptyText: "New notifications appear here as they arrive.",
  emptyUnreadTitle: "All caught up", emptyUnreadText: "You have read all your notifications.",
  failedTitle: "Could not load your notifications", failedText: "We keep trying.", tryNow: "Try now",
  offline: "You are offline. This list may be out of date.", connecting: "Connecting…",
  displaced: "This inbox is open in too many places. It no longer updates here.",
  notSaved: "Could not save: no connection.", refused: "That did not work.",
  arrived: (title) => `New: ${title}`, noAction: (title) => `“${title}” is not available on this page.`,
  archive: "Archive", archived: "Archived", restore: "Move to inbox", markUnread: "Mark as unread", moreFor: (title) => `More for “${title}”`, menu: "Menu",
  snooze: "Snooze", snoozeTimes: { hour: "In an hour", evening: "This evening", tomorrow: "Tomorrow morning", week: "Next Monday" },
  snoozedDone: (time) => `Snoozed until ${time}`, archivedDone: "Archived", restoredDone: "Back in your inbox", removedDone: "Deleted",
  undo: "Undo",
  mute: (type) => `Turn off “${type}”`, mutedDone: (type) => `“${type}” is off. The settings turn it on again.`,
  fresh: (count) => (count === 1 ? "1 new notification" : `${count} new notifications`),
  emptyArchiveTitle: "Nothing archived", emptyArchiveText: "Archive what you want to keep out of the way. It stays here for a year.",
  emptyCategoryTitle: "Nothing here", emptyCategoryText: "Notifications of this kind appear here.",
  email: "E-mail", emailAddress: "Address", emailText: "Notifications that you get by e-mail go to this address.", notAnAddress: "Enter an address such as ada@example.com.",
  emailSwitch: "Send me no e-mail",
  settings: "Settings", back: "Back to notifications", close: "Close",
  quietHours: "Quiet hours", quietSwitch: "Use quiet hours", quietText: "Notifications stay silent in these hours and wait in your inbox.",
  from: "From", until: "Until", days: "Days", zone: "Time zone", save: "Save", saved: "Saved", unsaved: "Not saved yet", noDay: "Choose at least one day, or turn quiet hours off.", noTime: "Enter two different times.",
  browserPush: "This browser", pushSwitch: "Push notifications", browserPushText: "Notifies you while this page is closed.",
  pushDenied: "This browser blocks notifications from this site. You can change that in its settings.",
  pushUnavailable: "Not available here.", pushUnsupported: "This browser does not support push.", pushFailed: "Could not turn on push notifications.",
  whatYouGet: "What you get", channels: { in_app: "Inbox", push: "Push", email: "E-mail" },
  emailMissing: "You get no e-mail: your address is missing, or your mail server refused it.",
  required: "Always on", other: "Other", preferencesFailed: "Could not load your settings.",
  pauseAll: "Pause everything", pauseSwitch: "Send me nothing", pauseAllText: "Stops everything except required notifications.",
  signedOutTitle: "You are signed out", signedOutText: "Sign in again to see your notifications.",
  signInTitle: "Your notifications", signInText: "Sign in with a token from your app.", tokenHint: "To try it out: gateway token --user ada",
  token: "Token", notAToken: "This is not a token: a token has three parts separated by dots.", stay: "Stay signed in on this browser",
  signIn: "Sign in", signOut: "Sign out", tokenRefused: "The token was refused or has expired.",
  linkSignsIn: (name, now) => `A link wants to sign you in as ${name}.${now ? ` You are signed in as ${now}.` : ""}`,
  declineLink: "No, keep it as it is",
};

/** Loads the languages besides English when they are needed. Bundlers find literal names only. */
const others = {
  ar: () => import("./texts-ar.js"), de: () => import("./texts-de.js"), es: () => import("./texts-es.js"),
  fr: () => import("./texts-fr.js"), ja: () => import("./texts-ja.js"), pt: () => import("./texts-pt.js"),
};
const rightToLeft = new Set(["ar", "fa", "he", "ur"]);

/**
 * Loads the first wanted language that has texts (English if none).
 *
 * @param own texts that replace those of the same keys.
 * @returns the tag, the texts and the writing direction.
 */
export async function language(wanted = navigator.languages, own = {}) {
  const base = (tag) => tag?.split("-")[0].toLowerCase();
  const found = [wanted].flat().find((tag) => base(tag) === "en" || Object.hasOwn(others, base(tag))) ?? "en";
  const texts = base(found) === "en" ? {} : await load(base(found));
  return { tag: found, texts: { ...en, ...texts, ...own }, direction: rightToLeft.has(base(found)) ? "rtl" : "ltr" };
}

/** Loads a language's file; after a failure, the words are English. */
async function load(name) {
  try {
    return (await others[name]()).default;
  } catch (error) {
    console.warn("carillon:", error.message);
    return {};
  }
}
