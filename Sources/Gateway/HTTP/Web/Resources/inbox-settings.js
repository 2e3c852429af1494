// Carillon · inbox-settings.js
// SPDX-License-Identifier: Apache-2.0

import { h, set } from "./dom.js";
import { icon } from "./icons.js";
import { later } from "./inbox-styles.js";
import { weekdays } from "./time.js";

later.settings.replaceSync(`
.card { padding: .95rem 1rem; border: 1px solid var(--line); border-radius: calc(var(--radius) - 3px); }
.card + .card { margin-block-start: .75rem; }
.card > h3 { display: flex; align-items: center; gap: .5rem; font-weight: 650; margin-block-end: .2rem; }
.card > h3 .icon { color: var(--accent); }
.toggle { display: inline-flex; align-items: center; gap: .55rem; cursor: pointer; font-size: .875rem; }
.card > .toggle { display: flex; justify-content: space-between; flex-direction: row-reverse; margin-block-start: .55rem; font-weight: 550; }
.toggle input { appearance: none; flex: none; position: relative; inline-size: 2.3rem; block-size: 1.35rem; margin: 0; border-radius: 1rem; background: var(--control); transition: background-color .15s; cursor: inherit; }
.toggle input::before { content: ""; position: absolute; inset-block-start: .175rem; inset-inline-start: .175rem; inline-size: 1rem; block-size: 1rem; border-radius: 50%; background: #fff; transition: inset-inline-start .15s; }
.toggle input:checked { background: var(--accent); }
.toggle input:checked::before { inset-inline-start: 1.125rem; background: var(--on-accent); }
.toggle input:is(:disabled, [aria-disabled="true"]) { opacity: .45; }
.toggle input:focus-visible { border-radius: 1rem; }
.address-form { display: grid; gap: .7rem; margin-block-start: .6rem; }
.category > .hint { margin-block: -.3rem .5rem; }
.quiet-form { display: grid; gap: .8rem; margin-block-start: .8rem; padding-block-start: .8rem; border-block-start: 1px solid var(--line); }
.times { display: grid; grid-template-columns: 1fr 1fr; gap: .75rem; }
.field { display: grid; gap: .25rem; min-inline-size: 0; font-size: .8rem; color: var(--muted); }
.field input, .field select { inline-size: 100%; min-inline-size: 0; padding: .4rem .55rem; border: 1px solid var(--control); border-radius: 8px; background: var(--surface); color: var(--text); font-size: .9rem; }
.days-field { display: flex; flex-wrap: wrap; gap: .3rem; min-inline-size: 0; }
.days-field legend { float: inline-start; inline-size: 100%; margin-block-end: .3rem; font-size: .8rem; color: var(--muted); }
.days-field label { position: relative; flex: 1; }
.days-field input { position: absolute; inset: 0; opacity: 0; margin: 0; inline-size: 100%; block-size: 100%; cursor: pointer; }
.days-field span { display: block; padding: .35rem .15rem; border: 1px solid var(--control); border-radius: 8px; text-align: center; font-size: .8rem; font-weight: 550; color: var(--muted); }
.days-field input:checked + span { background: var(--raised); border-color: var(--accent); color: var(--text); }
.days-field input:focus-visible + span { box-shadow: var(--focus); }
.row { display: flex; align-items: center; gap: .75rem; }
.status { color: var(--muted); font-size: .85rem; }
.status.fault, .email-missing { color: var(--danger); font-weight: 550; }
.email-missing:not(:empty) { margin-block: .3rem .6rem; }
.category { border-block-start: 1px solid var(--line); margin-inline: -1rem; padding-inline: 1rem; }
.category:first-of-type { margin-block-start: .6rem; }
.category:last-child { margin-block-end: -.6rem; }
.category summary { padding-block: .6rem; font-weight: 550; cursor: pointer; }
.category summary .count { margin-inline-start: .5rem; color: var(--muted); font-weight: 400; font-size: .85rem; }
.type-row { display: grid; gap: .35rem; padding-block: .55rem .7rem; border-block-start: 1px dashed var(--line); }
.type-name { font-size: .9rem; }
.type-row > .hint { font-size: .82rem; margin-block-start: -.3rem; }
.toggles { display: flex; flex-wrap: wrap; gap: .4rem 1.1rem; }
.toggles .toggle { color: var(--muted); font-size: .82rem; gap: .4rem; }
@media (forced-colors: active) {
  .days-field input:focus-visible + span { outline: 2px solid CanvasText; }
  .toggle input { border: 1px solid ButtonText; background: ButtonFace; forced-color-adjust: none; }
  .toggle input::before { background: ButtonText; }
  .toggle input:checked, .days-field input:checked + span { border-color: Highlight; background: Highlight; color: HighlightText; forced-color-adjust: none; }
  .toggle input:checked::before { background: HighlightText; }
}
`);

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
      const hours = { start: data.get("start"), end: data.get("end"), weekdays: chosen };
      this.#settings = await this.#client.call(
        "PUT", "/v1/settings", isOn ? { zone: data.get("zone"), quiet_hours: hours } : { quiet_hours: null });
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
