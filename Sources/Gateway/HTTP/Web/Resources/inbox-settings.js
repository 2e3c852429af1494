// Carillon · inbox-settings.js
// SPDX-License-Identifier: Apache-2.0

import { h, set } from "./dom.js";
import { icon } from "./icons.js";
import { weekdays } from "./time.js";

const channels = ["in_app", "push", "email"];

/** The settings: quiet hours, push in this browser, the address for e-mail, preferences. */
export class SettingsView {
  #inbox;
  #client;
  #push;
  #context;
  #settings = null;
  #isLoaded = false;
  /** The warning that e-mail is on but the address is missing or refused. */
  #missing;

  /** @param push returns this browser's Web Push; null without a worker. */
  constructor(inbox, push, context) {
    this.#inbox = inbox;
    this.#client = inbox.client;
    this.#push = push;
    this.#context = context;
    this.element = h("div", { class: "settings" });
    this.#missing = h("p", { class: "fault email-missing", role: "status" });
  }

  /** Loads everything on first display, and again after a failure. */
  async load() {
    if (this.#isLoaded) return;
    this.#isLoaded = true;
    const { texts } = this.#context;
    this.element.setAttribute("aria-busy", "true");
    try {
      const [settings, preferences, push] = await Promise.all([
        this.#client.call("GET", "/v1/settings"), this.#client.call("GET", "/v1/preferences"),
        // A switch whose script failed to load loads it again.
        this.#push?.().then((push) => push.state(), () => "off").catch(() => "unavailable") ?? "unavailable",
      ]);
      this.#settings = this.#noticeAddress(settings);
      const hasEmail = preferences.types.some(({ channels }) => channels?.includes("email"));
      const cards = [this.#quietHours(), this.#browser(push), hasEmail && this.#address(), this.#types(preferences), this.#pause()];
      this.element.replaceChildren(...cards.filter(Boolean));
    } catch (error) {
      this.#isLoaded = false;
      this.element.replaceChildren(h("p", { class: "fault", role: "alert" }, texts.preferencesFailed),
        h("button", { type: "button", class: "plain", onclick: () => this.load() }, texts.tryNow));
    } finally {
      this.element.removeAttribute("aria-busy");
    }
  }

  /** Loads everything again, if it is shown. */
  async reload() {
    if (!this.#isLoaded) return;
    this.#isLoaded = false;
    await this.load();
  }

  #card(name, title, symbol, ...children) {
    const id = `carillon-${name}`;
    return h("section", { class: `card card-${name}`, "aria-labelledby": id },
      h("h3", { id }, symbol ? icon(symbol) : null, title), ...children);
  }

  /**
   * A labelled switch. `change` returns false if it did not save, null if it showed the reason
   * itself.
   */
  #toggle(label, isOn, change, attributes) {
    const input = h("input", { type: "checkbox", role: "switch", ...attributes });
    input.checked = isOn;
    // `disabled` would lose the focus.
    input.addEventListener("click", (event) => input.ariaDisabled && event.preventDefault());
    input.addEventListener("change", async () => {
      set(input, { "aria-disabled": "true" });
      const isSaved = await change(input.checked).catch(() => false);
      if (isSaved === false || isSaved === null) input.checked = !input.checked;
      if (isSaved === false) this.#context.tell("refused");
      set(input, { "aria-disabled": null });
    });
    return h("label", { class: "toggle" }, input, h("span", null, label));
  }

  /** Shows or hides the e-mail warning, and returns the answer. */
  #noticeAddress(answer) {
    this.#missing.textContent = answer.email_missing ? this.#context.texts.emailMissing : "";
    return answer;
  }

  // Quiet hours.

  #quietHours() {
    const { texts, language } = this.#context;
    const known = this.#settings.quiet_hours;
    const zones = Intl.supportedValuesOf("timeZone");
    const zone = this.#settings.zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (!zones.includes(zone)) zones.unshift(zone);
    const status = h("span", { class: "status", role: "status" });
    const time = (name, value, label) =>
      h("label", { class: "field" }, h("span", null, label), h("input", { type: "time", name, required: true, value }));
    const days = weekdays(language);
    const longDays = weekdays(language, "long");
    const form = h("form", { class: "quiet-form", novalidate: true },
      h("div", { class: "times" },
        time("start", known?.start ?? "22:00", texts.from), time("end", known?.end ?? "07:00", texts.until)),
      h("fieldset", { class: "days-field" }, h("legend", null, texts.days), days.map((day, index) => {
        const isOn = !known || known.weekdays.includes(index + 1);
        const input = h("input", { type: "checkbox", name: "day", value: index + 1, "aria-label": longDays[index] });
        input.checked = isOn;
        return h("label", null, input, h("span", { "aria-hidden": "true" }, day));
      })),
      h("label", { class: "field" }, h("span", null, texts.zone),
        h("select", { name: "zone" }, zones.map((name) => {
          const option = h("option", { value: name }, name.replace(/_/g, " "));
          option.selected = name === zone;
          return option;
        }))),
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, texts.save), status));
    form.hidden = !known;
    const save = async (isOn) => {
      const data = new FormData(form);
      const chosen = data.getAll("day").map(Number);
      // The gateway takes two equal times for no quiet hours.
      const hasTimes = form.checkValidity() && data.get("start") !== data.get("end");
      const fault = isOn && (!chosen.length ? texts.noDay : hasTimes ? null : texts.noTime);
      status.classList.toggle("fault", Boolean(fault));
      status.textContent = fault || "";
      if (fault) return null;
      const hours = isOn
        ? { start: data.get("start"), end: data.get("end"), weekdays: chosen } : { start: "00:00", end: "00:00" };
      if (isOn && this.#settings.zone !== data.get("zone")) {
        await this.#client.call("PUT", "/v1/settings", { zone: data.get("zone") });
      }
      this.#settings = await this.#client.call("PUT", "/v1/preferences/quiet-hours", hours);
      form.hidden = !isOn;
      status.textContent = texts.saved;
      return true;
    };
    form.addEventListener("input", () => {
      status.classList.remove("fault");
      status.textContent = texts.unsaved;
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const isSaved = await save(true).catch(() => false);
      if (isSaved === false) {
        status.textContent = "";
        this.#context.tell("refused");
      }
    });
    return this.#card("quiet", texts.quietHours, "moon", h("p", { class: "hint" }, texts.quietText),
      this.#toggle(texts.quietSwitch, Boolean(known), save), form);
  }

  // This browser.

  #browser(state) {
    const { texts } = this.#context;
    const reason = { unsupported: texts.pushUnsupported, unavailable: texts.pushUnavailable, denied: texts.pushDenied };
    const note = h("p", { class: "hint" }, reason[state] ?? texts.browserPushText);
    const toggle = this.#toggle(texts.pushSwitch, state === "on", async (isOn) => {
      try {
        const push = await this.#push();
        const now = isOn ? await push.switchOn() : await push.switchOff();
        note.textContent = reason[now] ?? texts.browserPushText;
        return (now === "on") === isOn;
      } catch {
        note.textContent = texts.pushFailed;
        return false;
      }
    }, { disabled: state in reason });
    toggle.hidden = state === "unsupported" || state === "unavailable";
    return this.#card("browser", texts.browserPush, "device", note, toggle);
  }

  // The e-mail address.

  #address() {
    const { texts } = this.#context;
    const status = h("span", { class: "status", role: "status" });
    const field = h("input", {
      type: "email", name: "email", autocomplete: "email", maxlength: 254, value: this.#settings.email ?? "",
    });
    const form = h("form", { class: "address-form", novalidate: true },
      h("label", { class: "field" }, h("span", null, texts.emailAddress), field),
      h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, texts.save), status));
    const say = (text, isFault = false) => {
      status.classList.toggle("fault", isFault);
      status.textContent = text;
    };
    form.addEventListener("input", () => say(texts.unsaved));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!field.checkValidity()) return say(texts.notAnAddress, true);
      try {
        this.#settings = await this.#client.call("PUT", "/v1/settings", { email: field.value || null });
        this.#noticeAddress(this.#settings);
        say(texts.saved);
      } catch (error) {
        if (error.status === 422) say(texts.notAnAddress, true);
        else this.#context.tell("refused");
      }
    });
    // A link in a mail may have stopped all e-mail, whatever the preferences say.
    const stop = this.#settings.email_opted_out && this.#toggle(texts.emailSwitch, true, async (isOn) => {
      this.#settings = await this.#client.call("PUT", "/v1/settings", { email_opted_out: isOn });
      this.#noticeAddress(this.#settings);
    });
    return this.#card("email", texts.email, "mail", h("p", { class: "hint" }, texts.emailText), form, stop);
  }

  // Preferences per type.

  #types({ types }) {
    const { texts } = this.#context;
    const { words } = this.#inbox;
    const groups = Map.groupBy(types, (type) => type.category ?? "");
    return this.#card("types", texts.whatYouGet, "bell", this.#missing, [...groups].map(([category, members]) => {
      const { description } = words.category(category);
      return h("details", { class: "category", open: groups.size <= 3 },
        h("summary", null, h("bdi", null, category ? words.categoryName(category) : texts.other),
          h("span", { class: "count" }, String(members.length))),
        description ? h("p", { class: "hint" }, description) : null,
        h("ul", { role: "list" }, members.map((type) => this.#type(type))));
    }));
  }

  #type(type) {
    const { texts } = this.#context;
    const name = this.#inbox.words.typeName(type.type);
    const { description } = this.#inbox.words.type(type.type);
    return h("li", { class: "type-row", "data-type": type.type }, h("span", { class: "type-name" }, name),
      description ? h("span", { class: "hint" }, description) : null,
      type.required ? h("span", { class: "hint" }, texts.required)
        : h("span", { class: "toggles", role: "group", "aria-label": name },
          channels.filter((channel) => !type.channels || type.channels.includes(channel)).map((channel) =>
            this.#toggle(texts.channels[channel], type[channel], (isOn) => this.#prefer(type, channel, isOn)))));
  }

  async #prefer(type, channel, isOn) {
    const body = { types: [{ type: type.type, [channel]: isOn }] };
    return this.#noticeAddress(await this.#client.call("PUT", "/v1/preferences", body));
  }

  #pause() {
    const { texts } = this.#context;
    return this.#card("pause", texts.pauseAll, null, h("p", { class: "hint" }, texts.pauseAllText),
      this.#toggle(texts.pauseSwitch, this.#settings.opted_out, async (isOn) => {
        this.#settings = await this.#client.call("PUT", "/v1/settings", { opted_out: isOn });
      }));
  }
}
