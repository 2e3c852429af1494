// Carillon · admin-people.js
// SPDX-License-Identifier: Apache-2.0

import { NotificationHistory, ofUser, traceLink } from "./admin-history.js";
import { card, confirm, dateTime, facts, fill, number, personLink, pill, table, until, when } from "./admin-parts.js";
import { channelList, channelName, followUpName, quietHoursWords, reasonWords } from "./admin-words.js";
import { h, readable, set } from "./dom.js";

const language = document.documentElement.lang;
const platforms = { ios: "iOS", android: "Android", web: "Web", webhook: "Webhook" };
const protocols = { native: "Carillon", socketio: "Socket.IO", signalr: "SignalR", sse: "Server-Sent Events" };
/** The gateway finds no more users than this. */
const mostFound = 20;
const sendKinds = { accepted: "good", retry_later: "warn", no_answer: "warn", not_sent: "warn" };

const none = (text) => h("p", { class: "hint empty" }, text);

/** The view of a user, `#people/ID?status=…&type=…`; `#people?q=…` finds one by id or address. */
export function people(page, [user = ""], query) {
  const field = h("input", {
    name: "q", type: "search", required: true, maxlength: 254, value: user || query.get("q"), spellcheck: "false",
    autocomplete: "off", autocapitalize: "off",
  });
  const said = h("p", { class: "hint people-said", role: "status" });
  const form = h("form", { class: "filters-form people-search", role: "search" },
    h("label", { class: "field" }, h("span", null, "User id or e-mail address"), field),
    h("button", { type: "submit", class: "primary" }, "Find"));
  const place = h("div", { class: "view" });
  const element = h("div", { class: "view people" }, card("Find a user", form, said), place);
  let text = query.get("q") ?? "";
  let person = user ? new Person(page, user, query) : null;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    text = field.value.trim();
    if (!text) return;
    person = null;
    said.textContent = "";
    fill(place, null, () => []);
    history.pushState(null, "", `#people?${new URLSearchParams({ q: text })}`);
    page.refresh();
  });

  async function update() {
    if (person) return show();
    if (!text) return;
    const asked = text;
    let answer = null;
    let fault = "";
    try {
      answer = await page.call("GET", `/v1/admin/users?${new URLSearchParams({ q: asked })}`);
    } catch (error) {
      if (error.kind !== "refused" || error.status === 403) throw error;
      fault = page.explain(error);
    }
    if (person || asked !== text || !element.isConnected) return;
    const users = answer?.users ?? [];
    if (users.length === 1) {
      person = new Person(page, users[0].user_id, new URLSearchParams());
      history.replaceState(null, "", person.address);
      return show();
    }
    said.classList.remove("spoken");
    const count = `${users.length < mostFound ? "" : "At least "}${number(users.length)} users match.`;
    said.textContent = !answer ? fault : users.length ? count : "No user has this id or address.";
    fill(place, users, () => users.length ? card("Users", table("Users", ["User", "E-mail", "Last seen"],
      users.map((found) => [personLink(found.user_id), found.email, when(found.last_seen)]))) : []);
  }

  async function show() {
    const shown = person;
    const isKnown = await shown.update();
    if (shown !== person || !element.isConnected) return;
    said.classList.toggle("spoken", isKnown);
    const words = isKnown ? `This is ${shown.id}.` : `There is no user ${shown.id}.`;
    // Screen readers would repeat a text that is set again.
    if (said.textContent !== words) said.textContent = words;
    fill(place, [shown.id, isKnown], () => (isKnown ? shown.element : []));
  }

  return { element, update, get every() { return person ? 10_000 : null; } };
}

/** A user: state, devices, settings, and notifications. */
class Person {
  #page;
  #devices = new Map();
  #places;
  #history;
  #hasTypes = false;

  constructor(page, id, query) {
    this.#page = page;
    this.id = id;
    this.#history = new NotificationHistory(page, ofUser(id), query);
    const names = ["head", "devices", "settings", "refused", "topics", "waiting"];
    this.#places = Object.fromEntries(names.map((name) => [name, h("div", { class: `person-${name}` })]));
    const { head, devices, settings, refused, topics, waiting } = this.#places;
    this.element = h("div", { class: "view person", "data-user": id }, card(id, head),
      h("div", { class: "columns" }, card("Devices", devices),
        h("div", { class: "view" }, card("Settings", settings), card("Topics", topics))),
      h("div", { class: "columns" }, card("What is off", refused), card("What waits", waiting)),
      card("Notifications", this.#history.element));
  }

  get address() { return this.#history.address; }

  /** Loads the user again; returns false if there is none. */
  async update() {
    const call = this.#page.callIfThere(`/v1/admin/users/${encodeURIComponent(this.id)}`);
    // The user's view does not wait for the filter; the next update repeats a failed call.
    this.#offerTypes().catch(() => {});
    const [found] = await Promise.all([call, this.#history.update()]);
    if (!found) return false;
    const { head, devices, settings, refused, topics, waiting } = this.#places;
    fill(head, [found.presence, found.inbox, found.settings.email, found.created_at, found.last_seen], () => headOf(found));
    const views = found.devices.map((device) => {
      if (!this.#devices.has(device.id)) this.#devices.set(device.id, new DeviceView(this.#page, this.id, device.id));
      this.#devices.get(device.id).show(device);
      return this.#devices.get(device.id).element;
    });
    fill(devices, found.devices.map(({ id }) => id), () => (views.length ? views : none("No devices.")));
    fill(settings, [found.settings, found.email_fault, localTime(found.settings.zone)], () =>
      settingsOf(found.settings, found.email_fault));
    fill(refused, [found.preferences, found.settings], () => refusals(found));
    fill(topics, found.topics, () => (found.topics.length
      ? h("ul", { class: "tags" }, found.topics.map((topic) => h("li", null, h("code", null, topic)))) : none("No topics.")));
    fill(waiting, found.waiting, () => table("What waits", ["What", "Due", "Reason", "Notification"],
      found.waiting.map(({ kind, due_at: due, reason, notification_id: id, job_id: job }) => [
        followUpName(kind), reason === "handed_on" ? "–" : [until(due), h("div", { class: "hint" }, dateTime(due))],
        reason ? reasonWords(reason) : "–", id ? traceLink(id, this.id) : job ? ["job ", h("code", null, job)] : "–",
      ]), "Nothing waits."));
    return true;
  }

  /** Offers all types of the catalog to filter by, as disabled ones may have notifications too. */
  async #offerTypes() {
    if (this.#hasTypes) return;
    const { types } = await this.#page.call("GET", "/v1/types");
    this.#hasTypes = true;
    this.#history.offer(types.map(({ type }) => type));
  }
}

function headOf({ user_id: id, created_at: created, last_seen: seen, settings, inbox, presence }) {
  const sockets = presence.connections;
  const last = presence.last_seen ?? seen;
  return [
    h("div", { class: "row presence" },
      pill(presence.online ? "online" : "offline", presence.online ? "good" : "neutral"),
      h("span", null, presence.online ? `${number(sockets.length)} connection${sockets.length === 1 ? "" : "s"}`
        : last ? ["last seen ", when(last)] : "never seen"),
      h("a", { class: "plain simulate", href: `#simulate/${encodeURIComponent(id)}` }, "Simulate a job")),
    facts([["E-mail", settings.email ?? "none"], ["Unread", number(inbox.unread)], ["In the inbox", number(inbox.total)],
      ["Inbox version", number(inbox.version)], ["User since", dateTime(created)]], "facts"),
    sockets.length ? table("Connections", ["Protocol", "Node", "State", "Since"], sockets.map((socket) => [
      protocols[socket.dialect] ?? socket.dialect, h("code", null, socket.node),
      pill(socket.state, socket.state === "active" ? "good" : "warn"), when(socket.since),
    ])) : null,
  ].filter(Boolean);
}

function settingsOf(settings, emailFault) {
  const missing = settings.email_missing ? "e-mail is on for some types, but there is no address" : null;
  const fault = emailFault ? `mail to it comes back: ${emailFault}` : missing;
  return facts([
    ["Time zone", settings.zone ? `${settings.zone} (${localTime(settings.zone)})` : "not set, so the default applies"],
    ["Locale", settings.locale ?? "not set"], ["Quiet hours", quietHoursWords(settings.quiet_hours)],
    ["Opted out of", settings.opted_out ? "everything" : settings.email_opted_out ? "all e-mail" : "nothing"],
    ["E-mail address", settings.email ?? "none"],
    ...(fault ? [["Problem", h("span", { class: "bad" }, fault)]] : []),
  ], "facts");
}

function localTime(zone) {
  if (!zone) return null;
  try {
    const options = { timeZone: zone, hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    return `now ${new Date().toLocaleTimeString(language, options)}`;
  } catch {
    return "unknown to this browser";
  }
}

/** The categories and types with a channel that is off or with quiet hours of their own. */
function refusals({ preferences: { types, categories }, settings }) {
  const row = (name, channels, value, quiet) => {
    const off = channels.filter((channel) => value[channel] === false);
    const on = channels.filter((channel) => value[channel] === true);
    return off.length || quiet ? [[name, channelList(off), channelList(on), quiet ? quietHoursWords(quiet) : "–"]] : [];
  };
  const required = types.filter((type) => type.required);
  const rows = [
    ...categories.flatMap((one) => row([readable(one.category), " ", pill("category")], ["in_app", "push", "email"], one)),
    ...types.flatMap((type) => row(readable(type.type), type.required ? [] : type.channels, type, type.quiet_hours)),
  ];
  return [
    settings.opted_out ? h("p", { class: "fault" }, "The user has opted out of everything that is not required.") : null,
    table("What is off", ["Type", "Off", "On", "Quiet hours"], rows, "Every channel of every type is on."),
    h("p", { class: "hint" }, "Off by the user's choice or by default.",
      required.length ? ` Required, so always on: ${required.map(({ type }) => readable(type)).join(", ")}.` : ""),
  ].filter(Boolean);
}

/** A device, with a button that sends a test to it. Keeps the last answer. */
class DeviceView {
  #page;
  #body;
  #user;
  #name = "";
  #head = h("div");
  #answer = h("div", { class: "answer", role: "status" });
  #button = h("button", { type: "button", class: "plain test", onclick: () => this.#test() }, "Send a test");

  constructor(page, user, id) {
    this.#page = page;
    this.#body = { user, device: id };
    this.element = h("article", { class: "device", "data-id": id }, this.#head, this.#button, this.#answer);
  }

  show(device) {
    const { platform, provider, app, name, app_version: version, locale, active, enabled, deactivated_reason: reason } = device;
    this.#name = name ?? device.device_id ?? platforms[platform] ?? platform;
    set(this.#button, { hidden: !active, "aria-label": `Send a test to ${this.#name}` });
    const state = !active ? pill("inactive", "bad") : enabled ? pill("active", "good") : pill("switched off", "warn");
    const words = reason ? reasonWords(reason) : "unknown reason";
    const why = active ? (enabled ? null : "the user allows no pushes to it")
      : words === reason ? `the provider reported ${reason}` : words;
    fill(this.#head, device, () => [
      h("div", { class: "broadcast-head" }, h("h3", null, this.#name), state, why ? h("span", { class: "reason" }, why) : ""),
      h("p", { class: "hint" }, [platforms[platform] ?? platform, channelName(provider), `app ${app}`,
        version ? `version ${version}` : null, locale].filter(Boolean).join(" · "), " · last used ", when(device.last_used_at)),
    ]);
  }

  async #test() {
    const warning = "The device shows a test message. Preferences and quiet hours do not hold it back.";
    if (this.#button.ariaDisabled || !await confirm(`Send a test to ${this.#name}?`, warning, "Send it", "primary")) return;
    set(this.#button, { "aria-disabled": "true" });
    this.#answer.replaceChildren("Sending. The provider has up to 40 s to answer.");
    await this.#page.perform(async () => {
      try {
        this.#answer.replaceChildren(...answerOf(await this.#page.call("POST", "/v1/test-sends", this.#body)));
      } catch (error) {
        this.#answer.replaceChildren(h("p", { class: "fault" }, this.#page.explain(error)));
        if (error.kind !== "refused" || error.status === 403) throw error;
      }
    });
    set(this.#button, { "aria-disabled": null });
  }
}

function answerOf({ outcome, reason, advice, answer, provider_id: id, milliseconds }) {
  const known = [["Reason", reason], ["Advice", advice], ["Provider's id", id]].filter(([, value]) => value);
  return [h("p", { class: "counts" }, pill(readable(outcome).toLowerCase(), sendKinds[outcome] ?? "bad"),
    milliseconds === undefined ? "" : ` after ${number(milliseconds)} ms`),
    known.length ? facts(known, "facts") : "", answer ? h("pre", null, answer) : ""];
}
