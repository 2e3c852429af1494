// Carillon · admin-compose.js
// SPDX-License-Identifier: Apache-2.0

import { address, Field, offer, segments, select, showFaults, typeChoices, typingField } from "./admin-forms.js";
import { card, confirm, number, pill } from "./admin-parts.js";
import { Previews, TextInputs } from "./admin-preview.js";
import { h, readable, set } from "./dom.js";
import { marked } from "./marks.js";

/** The members of a job that have an input of their own. */
const taken = ["type", "user", "users", "topic", "all", "title", "body", "vars", "data", "lane", "org", "id"];
const lanes = [["", "The type's"], ["critical", "Critical"], ["normal", "Normal"], ["bulk", "Bulk"]];

/** The view that composes a broadcast, `#broadcasts/new?type=…`. The link holds the draft. */
export function compose(page, query) {
  const composer = new Composer(page, query);
  return { element: composer.element, update: () => composer.load(), get every() { return composer.isLoaded ? null : 5_000; } };
}

/** A draft: its inputs, their preview, and its sending. */
class Composer {
  #page;
  isLoaded = false;
  /** The types of the catalog by name. */
  #types = new Map();
  #isSending = false;
  /** Counts the changes of the inputs. */
  #changes = 0;
  #audience;
  #wanted;
  #type = new Field("Type", h("select", { name: "type", required: true }));
  #topic = new Field("Topic", h("input", { name: "topic", maxlength: 128, autocomplete: "off", spellcheck: "false" }));
  #text;
  #lane;
  #org = new Field("Organisation (optional)", h("input", { name: "org", maxlength: 128, autocomplete: "off", spellcheck: "false" }));
  #id = new Field("Id", h("input", { name: "id", required: true, maxlength: 128, autocomplete: "off", spellcheck: "false" }), {
    hint: "Sent twice, the same id notifies each user once.",
  });
  #more = new Field("More job fields, as JSON", h("textarea", {
    name: "more", rows: 2, spellcheck: "false", placeholder: '{"url": "/news/9", "channels": ["in_app"]}',
  }), { wide: true, names: ["more"] });
  #fault = h("p", { class: "fault wide", role: "alert" });
  #previews = new Previews();
  #reach = h("p", { class: "counts reach" });
  #send = h("button", { type: "button", class: "primary send", onclick: () => this.#confirm() }, "Send …");
  #stale = h("p", { class: "hint stale", role: "status" });
  #sendFault = h("p", { class: "fault", role: "alert" });
  #result = h("section", { class: "card compose-result", "aria-label": "Preview", tabindex: "-1", hidden: true },
    h("h2", null, "Preview"), this.#previews.element, this.#reach, this.#sendFault,
    h("div", { class: "row" }, this.#send, this.#stale));
  /** The previewed job with its audience; null before the preview and after a change. */
  #ready = null;

  constructor(page, query) {
    this.#page = page;
    this.#audience = query.get("topic") ? "topic" : "all";
    this.#text = new TextInputs(query);
    this.#lane = new Field("Lane", select("lane", lanes, query.get("lane") ?? ""));
    for (const field of [this.#topic, this.#org, this.#id, this.#more]) field.value = query.get(field.input.name);
    this.#id.value = this.#id.value || suggestedID();
    this.#wanted = query.get("type") ?? "";
    const audience = segments("Audience", "audience", [["all", "Everyone"], ["topic", "A topic"]], this.#audience, (value) => this.#chooseAudience(value));
    const form = h("form", { class: "simulate-form compose-form" },
      h("div", { class: "field" }, h("span", null, "Audience"), audience), this.#topic.element, this.#type.element,
      this.#lane.element, this.#org.element, this.#id.element, this.#text.elements, this.#more.element, this.#fault,
      h("div", { class: "row wide" }, h("button", { type: "submit", class: "primary" }, "Preview"),
        h("a", { class: "plain", href: "#broadcasts" }, "Back to the list"),
        h("span", { class: "hint" }, "Nothing is sent yet.")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#preview();
    });
    form.addEventListener("input", () => this.#outdate());
    form.addEventListener("change", () => this.#keep());
    this.#chooseAudience(this.#audience);
    this.element = h("div", { class: "view compose" }, card("Compose a broadcast", form), this.#result);
  }

  /** Loads the types, once. */
  async load() {
    if (this.isLoaded) return;
    const [{ types }] = await Promise.all([this.#page.call("GET", "/v1/admin/catalog"), this.#previews.load(this.#page)]);
    this.#types = new Map(types.map((type) => [type.name, type]));
    const choices = typeChoices(types.filter(({ enabled }) => enabled !== false));
    offer(this.#type.input, [["", "Choose a type"], ...choices], this.#wanted);
    this.isLoaded = true;
  }

  get #fields() {
    return [this.#type, this.#topic, ...this.#text.fields, this.#lane, this.#org, this.#id, this.#more];
  }

  #chooseAudience(value) {
    this.#audience = value;
    this.#topic.element.hidden = value !== "topic";
    this.#topic.input.required = value === "topic";
  }

  /** Keeps the draft in the link, so that it survives a reload and keeps its id. */
  #keep() {
    const own = [this.#lane, this.#org, this.#id, this.#more].map(({ input, value }) => [input.name, value]);
    // Before the types are known, the input is empty.
    const type = this.isLoaded ? this.#type.value : this.#wanted;
    const topic = this.#audience === "topic" ? this.#topic.value : "";
    history.replaceState(null, "", address("broadcasts/new", { type, topic, ...this.#text.values, ...Object.fromEntries(own) }));
  }

  /** Only text that was previewed can be sent. */
  #outdate() {
    this.#changes += 1;
    if (!this.#ready) return;
    this.#ready = null;
    set(this.#send, { "aria-disabled": "true" });
    this.#stale.textContent = "Something has changed. Preview it again before you send it.";
  }

  /** Returns the job without its audience; null if an input has a fault. */
  #read() {
    for (const field of this.#fields) field.fault = "";
    this.#fault.textContent = "";
    const text = this.#text.read();
    const more = this.#more.object();
    if (!text || more === null) return null;
    const twice = Object.keys(more ?? {}).find((name) => taken.includes(name));
    if (twice) {
      this.#more.fault = `${twice} has an input of its own.`;
      this.#more.input.focus();
      return null;
    }
    return { type: this.#type.value, ...text, lane: this.#lane.value || undefined, ...more };
  }

  async #preview() {
    const content = this.#read();
    if (!content) return;
    this.#keep();
    const changes = this.#changes;
    const topic = this.#audience === "topic" ? this.#topic.value : null;
    const question = new URLSearchParams(topic ? { topic } : { all: "true" });
    const found = await this.#attempt(this.#fault, () => Promise.all([
      this.#page.call("POST", "/v1/admin/previews", { job: content }), this.#page.call("GET", `/v1/admin/audiences?${question}`),
    ]));
    if (!found) return;
    const [{ previews }, audience] = found;
    const job = {
      id: this.#id.value, org: this.#org.value || undefined, ...(topic ? { topic } : { all: true }), ...content,
    };
    this.#previews.show(previews, job, this.#types.get(this.#type.value));
    this.#sendFault.textContent = "";
    this.#stale.textContent = "";
    this.#result.hidden = false;
    this.#reach.replaceChildren(...reachWords(topic, audience, this.#types.get(this.#type.value)));
    const isEmpty = audience.complete && audience.count === 0;
    this.#ready = isEmpty ? null : { job, topic, audience };
    this.#send.textContent = `Send to ${sizeWords(audience)} …`;
    set(this.#send, { "aria-disabled": isEmpty ? "true" : null });
    if (changes !== this.#changes) this.#outdate();
    this.#result.focus({ preventScroll: true });
    this.#result.scrollIntoView({ block: "nearest" });
  }

  async #confirm() {
    if (!this.#ready || this.#isSending) return;
    const { job, topic, audience } = this.#ready;
    const wanted = topic ?? (audience.complete ? String(audience.count) : "everyone");
    const prompt = topic ? `To confirm, type the topic: ${topic}`
      : audience.complete ? `To confirm, type the number of users: ${number(audience.count)}` : "To confirm, type: everyone";
    const typed = typingField(prompt, wanted);
    const text = this.#previews.text;
    const about = h("blockquote", { class: "said" }, h("strong", null, marked(text?.title || readable(job.type))), text?.body ? h("p", null, marked(text.body)) : null);
    const asked = confirm(`Send it to ${sizeWords(audience)}?`,
      `${readable(job.type)} to ${topic ? `the subscribers of ${topic}` : "everyone"}, as ${job.id}:`, "Send it", "primary", about, typed.element);
    typed.input.focus();
    if (await asked) await this.#sendNow(job);
  }

  async #sendNow(job) {
    this.#isSending = true;
    const sent = await this.#attempt(this.#sendFault, () => this.#page.call("POST", "/v1/jobs", job));
    this.#isSending = false;
    if (!sent) return;
    this.#page.tell(`Sent as ${sent.id}. It is in the list as soon as a dispatcher has taken it.`);
    location.hash = "#broadcasts";
  }

  /** Performs a call. If it fails, shows why at the inputs or in `place`, and returns null. */
  async #attempt(place, work) {
    place.textContent = "";
    let found = null;
    await this.#page.perform(async () => {
      try {
        found = await work();
      } catch (error) {
        if (error.kind === "unreachable") {
          place.textContent = "No answer from the gateway. Try again: with the same id each user is notified once.";
        } else {
          if (error.kind !== "refused" || error.status === 403) throw error;
          place.textContent = showFaults(error, this.#fields) || (place === this.#fault ? "" : "An input has a fault; see above.");
        }
      }
    });
    return found;
  }
}

function sizeWords({ count, complete }) {
  return `${complete ? "" : "more than "}${number(count)} ${complete && count === 1 ? "user" : "users"}`;
}

/** Says how many users the broadcast is for. */
function reachWords(topic, { count, complete }, type) {
  const isOne = complete && count === 1;
  const who = topic ? [isOne ? "subscriber of " : "subscribers of ", h("code", null, topic)]
    : [isOne ? "user, which is everyone" : "users, which is everyone"];
  const choice = type?.required ? "" : type?.default === false ? " Only those who have switched the type on get it."
    : " Those who have switched the type off get nothing.";
  if (complete && count === 0) return [pill("nobody", "bad"), topic ? " No user has subscribed to this topic." : " There are no users yet."];
  return [h("strong", { "data-audience": count }, `${complete ? "" : "More than "}${number(count)}`), " ", ...who,
    `.${choice}`];
}

/** Suggests an id that no other broadcast has: `broadcast-2026-11-26-k3x9qp`. */
function suggestedID() {
  const letters = "abcdefghjkmnpqrstuvwxyz23456789";
  const random = [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => letters[byte % letters.length]).join("");
  return `broadcast-${new Date().toISOString().slice(0, 10)}-${random}`;
}
