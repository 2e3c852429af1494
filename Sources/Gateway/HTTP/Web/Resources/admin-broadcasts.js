// Carillon · admin-broadcasts.js
// SPDX-License-Identifier: Apache-2.0

import { compose } from "./admin-compose.js";
import { address, Field, select } from "./admin-forms.js";
import { arrange, card, confirm, fill, firstPages, jobLink, number, pill, share, span, when } from "./admin-parts.js";
import { h, readable } from "./dom.js";
import { marked, unmarked } from "./marks.js";

const kinds = { expanding: "warn", counting: "warn", awaiting_confirmation: "warn", done: "good", failed: "bad" };
const pageSize = 20;
const mostPages = 10;
const states = ["counting", "awaiting_confirmation", "expanding", "paused", "done", "cancelling", "cancelled", "failed"];

/** The command that each state allows, apart from cancelling. */
const orders = {
  awaiting_confirmation: ["confirm", "Confirm"], counting: ["pause", "Pause"], expanding: ["pause", "Pause"],
  paused: ["resume", "Resume"], failed: ["resume", "Resume"],
};

/** The view of broadcasts, `#broadcasts?state=…`; `#broadcasts/new` composes one. */
export function broadcasts(page, [part = ""], query) {
  return part === "new" ? compose(page, query) : broadcastList(page, query);
}

/** The list of broadcasts: jobs for a topic or for everyone. */
function broadcastList(page, query) {
  const list = h("div", { class: "broadcasts" });
  const none = h("p", { class: "hint empty", hidden: true });
  const more = h("button", { type: "button", class: "plain", hidden: true, onclick: () => loadMore() }, "Show older");
  const rest = h("p", { class: "hint", hidden: true },
    `The newest ${mostPages * pageSize}. Choose a state to see others.`);
  const chosen = states.includes(query.get("state")) ? query.get("state") : "";
  const state = new Field("State", select("state", [["", "Any state"], ...states.map((one) => [one, readable(one)])], chosen));
  const form = h("form", { class: "filters-form broadcast-filters", onchange: () => filter() }, state.element,
    h("a", { class: "primary", href: "#broadcasts/new" }, "Compose a broadcast"));
  form.addEventListener("submit", (event) => event.preventDefault());
  const element = h("div", { class: "view" },
    card("Broadcasts", form, none, list, h("div", { class: "row" }, more, rest)));
  const views = new Map();
  let pages = 1;
  /** The milliseconds to the next poll. The pages of large broadcasts take a while to sum up. */
  let pause = 3_000;

  async function update() {
    const asked = state.value;
    const begin = performance.now();
    const question = { limit: pageSize, ...(asked ? { state: asked } : {}) };
    const { items: found, cursor } = await firstPages(page, "/v1/admin/broadcasts", "broadcasts", question, pages);
    pause = Math.max(3_000, Math.min(60_000, 20 * (performance.now() - begin)));
    // The user has chosen another filter meanwhile.
    if (asked !== state.value) return;
    none.textContent = asked ? "No broadcast has this state." : "No broadcasts in the last 90 days.";
    none.hidden = found.length > 0;
    more.hidden = !cursor || pages >= mostPages;
    rest.hidden = !cursor || pages < mostPages;
    for (const broadcast of found) {
      if (!views.has(broadcast.id)) views.set(broadcast.id, new BroadcastView(page, broadcast));
      views.get(broadcast.id).show(broadcast);
    }
    arrange(list, found.map((broadcast) => views.get(broadcast.id).element));
  }

  function filter() {
    history.pushState(null, "", address("broadcasts", { state: state.value }));
    pages = 1;
    page.refresh();
  }

  function loadMore() {
    pages += 1;
    page.refresh();
  }

  return { element, update, get every() { return pause; } };
}

/** How fast a broadcast selects its users, from the polls of the last half minute. */
class Pace {
  #seen = [];

  /** Notes how many users are selected now; forgets the past after a pause of the polls. */
  note(selected, now = performance.now()) {
    const last = this.#seen.at(-1);
    if (last && (now - last.at > 30_000 || selected < last.selected)) this.#seen = [];
    this.#seen = [...this.#seen.filter(({ at }) => now - at <= 30_000), { at: now, selected }];
  }

  forget() { this.#seen = []; }

  /** Users per second; null before the second poll. */
  get rate() {
    const [first, last] = [this.#seen[0], this.#seen.at(-1)];
    return this.#seen.length < 2 ? null : ((last.selected - first.selected) * 1_000) / (last.at - first.at);
  }

  /** Returns the rate, and the time that the rest takes if it is known; empty without a rate. */
  words(rest) {
    const rate = this.rate;
    if (rate === null || rest === 0) return "";
    if (rate === 0) return "no progress in the last polls";
    const speed = `${number(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate))} users a second`;
    return rest === null ? speed : `${speed}, about ${span(Math.ceil(rest / rate))} left`;
  }
}

/**
 * A broadcast. Redraws its buttons only when its state changes, so that a click does not miss them.
 */
class BroadcastView {
  #page;
  #head = h("div", { class: "broadcast-head" });
  #filled = h("span", { class: "filled" });
  #counts = h("p", { class: "counts" });
  #speed = h("p", { class: "hint speed" });
  #pace = new Pace();
  #orders = h("div", { class: "row" });
  #progress;

  constructor(page, broadcast) {
    this.#page = page;
    this.#progress = h("div", {
      class: "progress", role: "progressbar", "aria-label": "Expanded", "aria-valuemin": "0", "aria-valuemax": "100",
    }, this.#filled);
    this.element = h("article", { class: "broadcast", "data-job": broadcast.job_id }, this.#head,
      h("div", { class: "says" },
        h("strong", null, broadcast.title ? marked(broadcast.title) : "No text: the catalog cannot render it"),
        broadcast.body ? h("p", null, marked(broadcast.body)) : null),
      h("p", { class: "hint" }, broadcast.type ? `${readable(broadcast.type)} · ` : "", jobLink(broadcast.job_id, broadcast.org),
        broadcast.org ? ` of ${broadcast.org}` : "", ` · lane ${broadcast.lane}`),
      this.#progress, this.#counts, this.#speed, this.#orders);
  }

  show(broadcast) {
    const isHeld = broadcast.held && broadcast.state === "expanding";
    fill(this.#head, [broadcast.state, isHeld], () => [
      h("h3", null, broadcast.topic ? `Topic ${broadcast.topic}` : "Everyone"),
      pill(isHeld ? "held back" : word(broadcast.state), kinds[broadcast.state]),
      h("span", { class: "hint" }, when(broadcast.created_at)),
    ]);
    fill(this.#orders, [broadcast.state, isScheduled(broadcast)], () => this.#buttons(broadcast));
    const seen = broadcast.audience ? Math.min(1, broadcast.selected / broadcast.audience) : broadcast.chains_done / 16;
    const done = Math.round(100 * (broadcast.state === "done" ? 1 : seen));
    this.#filled.style.inlineSize = `${done}%`;
    this.#filled.classList.toggle("good", broadcast.state === "done");
    this.#progress.setAttribute("aria-valuenow", done);
    this.#counts.textContent = [
      `${number(broadcast.stored)} stored of ${number(broadcast.audience)}`
        + (broadcast.audience ? ` (${share(broadcast.stored, broadcast.audience)})` : ""),
      ...Object.entries(broadcast.not_stored ?? {}).map(([reason, count]) => `${number(count)} ${word(reason)}`),
      broadcast.withdrawn ? `${number(broadcast.withdrawn)} withdrawn` : null,
      broadcast.reason,
    ].filter(Boolean).join(" · ");
    this.#showSpeed(broadcast);
  }

  #showSpeed({ state, selected, audience }) {
    if (state === "expanding") this.#pace.note(selected);
    else this.#pace.forget();
    this.#speed.textContent = this.#pace.words(audience === null ? null : Math.max(0, audience - selected));
    this.#speed.hidden = !this.#speed.textContent;
  }

  #buttons(broadcast) {
    const [order, label] = orders[broadcast.state] ?? [];
    if (!order && !isScheduled(broadcast)) return [];
    const org = broadcast.org ? `?org=${encodeURIComponent(broadcast.org)}` : "";
    const path = (verb) => `/v1/jobs/${encodeURIComponent(broadcast.job_id)}${verb}${org}`;
    return [
      order && h("button", {
        type: "button", class: order === "confirm" ? "primary" : "plain", "data-order": order,
        onclick: async () => {
          const [question, yes] = order === "confirm" ? [`Send it to ${number(broadcast.audience)} users?`, "Send it"]
            : ["Resume this broadcast?", "Resume it"];
          if (order === "pause" || await confirm(question, says(broadcast), yes, "primary")) {
            this.#tell("POST", path(`/${order}`), `${label}: done.`);
          }
        },
      }, label),
      h("button", { type: "button", class: "danger", "data-order": "cancel", onclick: async () => {
        const text = `${says(broadcast)} No further user gets it, and notifications that are not delivered yet are withdrawn.`;
        if (await confirm("Cancel this broadcast?", text, "Cancel it")) this.#tell("DELETE", path(""), "Cancelled.");
      } }, "Cancel"),
    ].filter(Boolean);
  }

  async #tell(method, path, text) {
    await this.#page.perform(() => this.#page.call(method, path), text);
    this.#page.refresh();
  }
}

/** Returns the type, audience and text of a broadcast, for a dialog. */
function says({ title, body, type, topic }) {
  const text = unmarked([title, body].filter(Boolean).join(" – "));
  return `${type ? readable(type) : "A job"} to ${topic ? `the subscribers of ${topic}` : "everyone"}`
    + (text ? `: “${text}”.` : ". The current catalog cannot render its text.");
}

/** Whether all is stored, but users still wait for their local time. */
const isScheduled = ({ state, not_stored: others }) => state === "done" && others?.scheduled > 0;

const word = (text) => readable(text).toLowerCase();
