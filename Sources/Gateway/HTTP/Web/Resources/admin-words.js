// Carillon · admin-words.js
// SPDX-License-Identifier: Apache-2.0

// The gateway's terms in words.

import { readable } from "./dom.js";
import { weekdays } from "./time.js";

const channelNames = {
  in_app: "In app", push: "Push", fcm: "FCM", apns: "APNs", webpush: "Web Push", email: "E-mail", webhook: "Webhook",
};

/** The ids of channels and providers, in the order of the charts. */
export const channelIDs = Object.keys(channelNames);

/** Returns the name of a channel or provider, or an unknown id as it is. */
export const channelName = (id) => (Object.hasOwn(channelNames, id) ? channelNames[id] : id);

/** Returns the names of channels, or `–` for none. */
export const channelList = (channels) => channels.map(channelName).join(", ") || "–";

/** Returns the title of a step of a trace or simulation. */
export const stepName = (id) => (Object.hasOwn(channelNames, id) ? channelNames[id] : readable(id));

const followUps = {
  release: "Push after quiet hours", attention: "Push to a connected user", email: "E-mail if unread",
  schedule: "Scheduled job", snooze: "Back after a snooze", summary: "Summary of a digest",
};

/** Returns what waits for its time, in words. */
export const followUpName = (kind) => (Object.hasOwn(followUps, kind) ? followUps[kind] : readable(kind));

/** For each status of a notification: good or bad. */
export const statusKinds = {
  pending: "neutral", sent: "good", delivered: "good", failed: "bad", expired: "warn", suppressed: "warn",
  deferred: "warn", cancelled: "warn",
};

const reasons = {
  already_accepted: "this device or address had it already",
  already_delivered: "a client had it already",
  cancelled: "the job was cancelled",
  cancelled_too_late: "cancelled too late: a provider had accepted it",
  capped_by_category: "the user has reached the cap of this category",
  capped_by_type: "the user has reached the cap of this type",
  capped_by_user: "the user has reached the cap",
  deleted: "the user archived or deleted it first",
  device_inactive: "the device was removed or switched off, or is another user's",
  digest: "a digest holds it until its window ends",
  dispatchers_died: "dispatchers died while they sent it",
  expired: "it expired",
  handed_on: "in flight: a provider's stream has it",
  idle: "the user is connected but idle",
  in_flight: "a provider may still have it",
  missed: "its local time had passed too long ago",
  no_address: "no valid e-mail address",
  no_channel: "job, type and delivery have no channel in common",
  no_device: "no active device of a configured provider",
  no_provider: "no provider is configured for it",
  no_turn: "the dispatcher had too much to send first",
  not_in_quiet_hours: "quiet hours, in which its type is not pushed",
  not_opted_in: "the type is off unless the user switches a channel on",
  offline: "the user was offline",
  opened: "the user opened it first",
  opted_out: "the user has opted out",
  opted_out_of_type: "the user has switched off every channel of this type",
  out_of_use: "its provider is not called for now",
  presence_unknown: "presence was unknown",
  push_when_online: "the type is pushed to connected users too",
  queued: "queued for a provider",
  quiet_hours: "quiet hours",
  rate: "the app's rate is used up",
  read: "the user read it first",
  replaced: "a newer one with its collapse key replaced it",
  stale: "not seen for too long",
  summarised: "in a summary",
  too_many_devices: "the user has registered too many newer devices",
  type_disabled: "the type is switched off in the catalog",
  under_way: "it is being sent already",
  unproven: "no proof of receipt",
  unread: "still unread, or unread again",
};

/** Returns a reason in words, or as it is if it is a provider's own. */
export const reasonWords = (reason) => (Object.hasOwn(reasons, reason) ? reasons[reason] : reason);

const ways = {
  client: "confirmed by the client", email: "by e-mail", inbox: "in the inbox", socket: "on sockets", summary: "in a summary",
};

/** Returns how a notification went out: `by FCM`, `on sockets`. */
export const wayWords = (via) => (Object.hasOwn(ways, via) ? ways[via] : `by ${channelName(via)}`);

/** Returns why a notification has its status, and how it went out. */
export function outcomeWords({ status, status_reason: reason, decision, sent_via: via }) {
  const words = [
    reason && reason !== decision && reason !== status ? reasonWords(reason) : null,
    decision ? `held back: ${reasonWords(decision)}` : null,
    via ? wayWords(via) : null,
  ];
  return [...new Set(words.filter(Boolean))].join(" · ");
}

/** Returns quiet hours in words: `22:00 to 07:00, Mon–Fri`. */
export function quietHoursWords(quiet) {
  if (!quiet || quiet === "none" || quiet.start === quiet.end) return "none";
  const names = weekdays(document.documentElement.lang);
  const days = quiet.weekdays ?? [1, 2, 3, 4, 5, 6, 7];
  const isRun = days.length > 2 && days.at(-1) - days[0] === days.length - 1;
  const words = (isRun ? [days[0], days.at(-1)] : days).map((day) => names[day - 1]).join(isRun ? "–" : ", ");
  return `${quiet.start} to ${quiet.end}, ${days.length === 7 ? "every day" : words}`;
}
