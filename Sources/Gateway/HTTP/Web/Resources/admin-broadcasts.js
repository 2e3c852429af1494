// Carillon · admin-broadcasts.js
// SPDX-License-Identifier: Apache-2.0

import { card, confirm, fill, number, pill, share, when } from "./admin-parts.js";
import { h, readable } from "./dom.js";

const kinds = { expanding: "warn", counting: "warn", awaiting_confirmation: "warn", done: "good", failed: "bad" };

/** The command that each state allows, apart from cancelling. */
const orders = {
  awaiting_confirmation: ["confirm", "Confirm"], counting: ["pause", "Pause"], expanding: ["pause", "Pause"],
  paused: ["resume", "Resume"],
};

/** The view of broadcasts: jobs for a topic or for everyone. */
export function broadcasts(page) {
  const list = h("div", { class: "broadcasts" });
  const none = h("p", { class: "hint empty", hidden: true }, "No broadcasts in the last 90 days.");
  const more = h("button", { type: "button", class: "plain", hidden: true, onclick: () => loadMore() }, "Show older");
  const element = h("div", { class: "view" }, card("Broadcasts", none, list, more));
  const views = new Map();
  let pages = 1;

  async function update() {
    let found = [];
    let cursor = null;
    for (let index = 0; index < pages && (index === 0 || cursor); index += 1) {
      const query = new URLSearchParams({ limit: 20, ...(cursor ? { cursor } : {}) });
      const next = await page.call("GET", `/v1/admin/broadcasts?${query}`);
      found = [...found, ...next.broadcasts];
      cursor = next.next_cursor;
    }
    none.hidden = found.length > 0;
    more.hidden = !cursor || pages >= 10;
    for (const broadcast of found) {
      if (!views.has(broadcast.id)) views.set(broadcast.id, new BroadcastView(page, broadcast));
      views.get(broadcast.id).show(broadcast);
    }
    const elements = found.map((broadcast) => views.get(broadcast.id).element);
    fill(list, found.map((broadcast) => broadcast.id), () => elements);
  }

  function loadMore() {
    pages += 1;
    page.refresh();
  }

  return { element, update, every: 3_000 };
}

/**
 * A broadcast. Redraws its buttons only when its state changes, so that a click does not miss them.
 */
class BroadcastView {
  #page;
  #head = h("div", { class: "broadcast-head" });
  #filled = h("span", { class: "filled" });
  #counts = h("p", { class: "counts" });
  #orders = h("div", { class: "row" });
  #progress;

  constructor(page, broadcast) {
    this.#page = page;
    const name = broadcast.org ? `${broadcast.org}/${broadcast.job_id}` : broadcast.job_id;
    this.#progress = h("div", {
      class: "progress", role: "progressbar", "aria-label": "Expanded", "aria-valuemin": "0", "aria-valuemax": "100",
    }, this.#filled);
    this.element = h("article", { class: "broadcast", "data-job": broadcast.job_id }, this.#head,
      h("div", { class: "says" }, h("strong", null, broadcast.title || "No text: the catalog cannot render it"), broadcast.body ? h("p", null, broadcast.body) : null),
      h("p", { class: "hint" }, broadcast.type ? `${readable(broadcast.type)} · ` : "", h("code", null, name), ` · lane ${broadcast.lane}`),
      this.#progress, this.#counts, this.#orders);
  }

  show(broadcast) {
    const isHeld = broadcast.held && broadcast.state === "expanding";
    fill(this.#head, [broadcast.state, isHeld], () => [
      h("h3", null, broadcast.topic ? `Topic ${broadcast.topic}` : "Everyone"),
      pill(isHeld ? "held back" : word(broadcast.state), kinds[broadcast.state]),
      h("span", { class: "hint" }, when(broadcast.created_at)),
    ]);
    fill(this.#orders, broadcast.state, () => this.#buttons(broadcast));
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
  }

  #buttons(broadcast) {
    const [order, label] = orders[broadcast.state] ?? [];
    if (!order) return [];
    const org = broadcast.org ? `?org=${encodeURIComponent(broadcast.org)}` : "";
    const path = (verb) => `/v1/jobs/${encodeURIComponent(broadcast.job_id)}${verb}${org}`;
    return [
      h("button", {
        type: "button", class: order === "confirm" ? "primary" : "plain", "data-order": order,
        onclick: async () => {
          if (order !== "confirm" || await confirm(`Send it to ${number(broadcast.audience)} users?`, says(broadcast), "Send it", "primary")) {
            this.#tell("POST", path(`/${order}`), `${label}: done.`);
          }
        },
      }, label),
      h("button", { type: "button", class: "danger", "data-order": "cancel", onclick: async () => {
        const text = `${says(broadcast)} No further user gets it, and notifications that are not delivered yet are withdrawn.`;
        if (await confirm("Cancel this broadcast?", text, "Cancel it")) this.#tell("DELETE", path(""), "Cancelled.");
      } }, "Cancel"),
    ];
  }

  async #tell(method, path, text) {
    await this.#page.perform(() => this.#page.call(method, path), text);
    this.#page.refresh();
  }
}

/** Returns the type, audience and text of a broadcast, for a dialog. */
function says({ title, body, type, topic }) {
  const text = [title, body].filter(Boolean).join(" – ");
  return `${type ? readable(type) : "A job"} to ${topic ? `the subscribers of ${topic}` : "everyone"}`
    + (text ? `: “${text}”.` : ". The current catalog cannot render its text.");
}

const word = (text) => readable(text).toLowerCase();
