// Carillon · admin-simulate.js
// SPDX-License-Identifier: Apache-2.0

import { localTime } from "./admin-filters.js";
import { address, Field, offer, select, showFaults, typeChoices } from "./admin-forms.js";
import { card, dateTime, detailsOf, facts, number, pill, table, timeline } from "./admin-parts.js";
import { channelName, stepName } from "./admin-words.js";
import { h } from "./dom.js";

const presences = { actual: "as now", offline: "offline", online: "online and looking", idle: "online, but away" };

/**
 * The view that simulates what a user would get for a job, and when: `#simulate/USER?type=…`. A
 * link with a type shows the result at once.
 */
export function simulate(page, [name = ""], query) {
  const text = { autocomplete: "off", autocapitalize: "off", spellcheck: "false" };
  const user = new Field("User", h("input", { name: "user", required: true, maxlength: 128, ...text }));
  const type = new Field("Type", h("select", { name: "type", required: true }));
  const title = new Field("Title", h("input", { name: "title", maxlength: 255 }));
  const at = new Field("Your time (now if empty)", h("input", { name: "at", type: "datetime-local", step: "any" }));
  const presence = new Field("The user is", select("presence", Object.entries(presences)));
  const proven = h("input", { name: "proven", type: "checkbox" });
  const more = new Field("More job fields, as JSON", h("textarea", {
    name: "more", rows: 3, spellcheck: "false", placeholder: '{"channels": ["push"], "severity": "alert"}',
  }), { wide: true });
  const fields = [user, type, title, at, presence, more];
  const fault = h("p", { class: "fault wide", role: "alert" });
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "simulate-form" }, fields.map(({ element }) => element),
    h("label", { class: "check wide" }, proven, " Sockets prove receipt"), fault,
    h("div", { class: "row wide" }, h("button", { type: "submit", class: "primary" }, "Simulate"),
      h("span", { class: "hint" }, "Nothing is stored, counted or sent.")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    history.pushState(null, "", link());
    run();
  });
  user.value = name;
  // A type with texts of its own has no title.
  title.value = query.get("title") ?? (query.has("type") ? "" : "A test");
  at.value = localTime(query.get("at") ?? "");
  if (Object.hasOwn(presences, query.get("presence"))) presence.value = query.get("presence");
  proven.checked = query.get("proven") !== "false";
  more.value = query.get("more");

  let isLoaded = false;
  async function update() {
    if (isLoaded) return;
    const { types } = await page.call("GET", "/v1/admin/catalog");
    const wanted = query.get("type");
    offer(type.input, typeChoices(types), wanted ?? "");
    isLoaded = true;
    if (wanted && user.value) await run();
  }

  const moment = () => (at.value ? new Date(at.value).toISOString() : "");

  /** The URL of this view with all inputs. */
  function link() {
    return address(`simulate/${encodeURIComponent(user.value)}`, {
      type: type.value, title: title.value, at: moment(), presence: presence.value === "actual" ? "" : presence.value,
      proven: proven.checked ? "" : "false", more: more.value,
    });
  }

  async function run() {
    fault.textContent = "";
    for (const field of fields) field.fault = "";
    const others = more.object();
    if (others === null) return more.input.focus();
    const body = {
      user: user.value, job: { type: type.value, title: title.value || undefined, ...others }, presence: presence.value,
      proven: proven.checked, ...(at.value ? { at: moment() } : {}),
    };
    await page.perform(async () => {
      try {
        result.replaceChildren(view(await page.call("POST", "/v1/admin/simulate", body)));
      } catch (error) {
        if (error.kind !== "refused" || error.status === 403) throw error;
        result.replaceChildren();
        fault.textContent = showFaults(error, fields);
      }
    });
  }

  return { element: h("div", { class: "view" }, card("What would a user get?", form), result), update, get every() { return isLoaded ? null : 5_000; } };
}

function view(found) {
  const devices = found.reachable === undefined || found.reachable === found.devices ? number(found.devices)
    : `${number(found.devices)}, of which ${number(found.reachable)} can be reached`;
  const known = [
    ["User", found.user_id], ["Zone", found.zone ?? "not set"], ["Locale", found.locale ?? "not set"], ["Devices", devices],
    ["Quiet until", found.quiet_until && dateTime(found.quiet_until)], ["Cap reached", found.cap],
    ["Text", found.body ? `${found.title} – ${found.body}` : found.title],
  ].filter(([, value]) => value);
  return card("Result", facts(known, "facts"), channelTable(found.channels),
    found.steps.length ? h("h3", null, "Steps") : h("p", { class: "hint empty" }, "The user gets nothing, so there are no steps."),
    timeline(found.steps.map((step) => ({
      at: step.at, title: stepName(step.step), kind: kind(step),
      details: detailsOf(step.devices ? { ...step, devices: reached(found.push_devices) } : step),
    })), "Steps"));
}

/** Which channels are used, and why. */
function channelTable(channels) {
  return table("Channels", ["Channel", "Used", "Why"], channels.map((fate) => [
    channelName(fate.channel), pill(fate.used ? "yes" : "no", fate.used ? "good" : "neutral"),
    [fate.text, fate.at ? h("div", { class: "hint" }, "at ", dateTime(fate.at)) : ""],
  ]));
}

/** The devices that a push reaches, with their ids. */
function reached(devices) {
  return devices.filter(({ reachable }) => reachable)
    .map(({ provider, id, name }) => `${channelName(provider)} ${id}${name ? ` (${name})` : ""}`).join(", ");
}

function kind({ step, status }) {
  if (["push", "publish", "email"].includes(step)) return "good";
  if (["schedule", "gather", "postpone", "hold_back", "wait", "publish_silently"].includes(step)) return "warn";
  return ["suppressed", "expired", "failed"].includes(status) ? "bad" : "";
}
