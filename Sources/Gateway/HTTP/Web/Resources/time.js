// Carillon · time.js
// SPDX-License-Identifier: Apache-2.0

const units = [["year", 31_536_000], ["month", 2_592_000], ["week", 604_800], ["day", 86_400], ["hour", 3_600], ["minute", 60]];

/** Formats a past time relative to now; `justNow` for less than a minute, and for the future. */
export function ago(moment, language, justNow, now = Date.now()) {
  const seconds = (now - new Date(moment).getTime()) / 1000;
  const format = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "narrow" });
  for (const [unit, length] of units) {
    if (seconds >= length) return format.format(-Math.floor(seconds / length), unit);
  }
  return justNow;
}

/** Formats a date and time in full. */
export function exactly(moment, language) {
  return new Date(moment).toLocaleString(language, { dateStyle: "full", timeStyle: "short" });
}

/** Returns midnight of that day in the reader's time zone. */
export function day(moment) {
  return new Date(new Date(moment).setHours(0, 0, 0, 0));
}

/** Formats a day as a heading: today, yesterday, a weekday of the last week, or the date. */
export function dayName(date, language, now = new Date()) {
  const days = Math.round((day(now) - date) / 86_400_000);
  if (days <= 1) {
    const text = new Intl.RelativeTimeFormat(language, { numeric: "auto" }).format(-Math.max(0, days), "day");
    return text.charAt(0).toLocaleUpperCase(language) + text.slice(1);
  }
  if (days < 7) return date.toLocaleDateString(language, { weekday: "long" });
  const sameYear = date.getFullYear() === now.getFullYear();
  return date.toLocaleDateString(language, { day: "numeric", month: "long", year: sameYear ? undefined : "numeric" });
}

/** Returns the names of the weekdays, Monday first. */
export function weekdays(language, style = "short") {
  // 2024-01-01 was a Monday.
  return Array.from({ length: 7 }, (_, index) =>
    new Date(Date.UTC(2024, 0, 1 + index)).toLocaleDateString(language, { weekday: style, timeZone: "UTC" }));
}
