// Carillon · admin-broadcasts.js
// SPDX-License-Identifier: Apache-2.0

import { card, confirm, fill, number, pill, share, when } from "./admin-parts.js";
import { h, readable } from "./dom.js";

const kinds = { expanding: "warn", counting: "warn", awaiting_confirmation: "warn", done: "good", failed: "bad" };

/** What each state can be told, besides being cancelled. */
const orders = {
  awaiting_confirmation: ["confirm", "Confirm"], counting: ["pause", "Pause"], expanding: ["pause", "Pause"],
  paused: ["resume", "Resume"],
};

/** Jobs for a topic or for everyone, as they go. */
export function broadcasts(page) {
  const list = h("div", { class: "broadcasts" });
  const more = h("button", { type: "button", class: "plain", hidden: true, onclick: () => loadMore() }, "Show older");
  const element = h("div", { class: "view" }, card("Broadcasts", list, more));
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
    more.hidden = !cursor || pages >= 10;
    const none = "There were none in the last 90 days.";
    fill(list, found, () => (found.length ? found.map(view) : h("p", { class: "hint empty" }, none)));
  }

  function loadMore() {
    pages += 1;
    page.refresh();
  }

  function view(broadcast) {
    const org = broadcast.org ? `?org=${encodeURIComponent(broadcast.org)}` : "";
    const path = (verb) => `/v1/jobs/${encodeURIComponent(broadcast.job_id)}${verb}${org}`;
    const name = broadcast.org ? `${broadcast.org}/${broadcast.job_id}` : broadcast.job_id;
    const tell = async (work, text) => {
      await page.perform(work, text);
      page.refresh();
    };
    const [order, label] = orders[broadcast.state] ?? [];
    const isOpen = order || broadcast.held;
    const seen = broadcast.audience ? Math.min(1, broadcast.selected / broadcast.audience) : broadcast.chains_done / 16;
    const done = broadcast.state === "done" ? 1 : seen;
    const filled = h("span", { class: broadcast.state === "done" ? "filled good" : "filled" });
    filled.style.inlineSize = `${Math.round(100 * done)}%`;
    const word = (text) => readable(text).toLowerCase();
    const counts = [
      `${number(broadcast.stored)} stored of ${number(broadcast.audience)}`
        + (broadcast.audience ? ` (${share(broadcast.stored, broadcast.audience)})` : ""),
      ...Object.entries(broadcast.not_stored ?? {}).map(([reason, count]) => `${number(count)} ${word(reason)}`),
      broadcast.withdrawn ? `${number(broadcast.withdrawn)} withdrawn` : null,
      broadcast.reason,
    ].filter(Boolean);
    const isHeld = broadcast.held && broadcast.state === "expanding";
    return h("article", { class: "broadcast", "data-job": broadcast.job_id },
      h("div", { class: "broadcast-head" },
        h("h3", null, broadcast.topic ? `Topic ${broadcast.topic}` : "Everyone"),
        pill(isHeld ? "held back" : word(broadcast.state), kinds[broadcast.state]),
        h("span", { class: "hint" }, when(broadcast.created_at))),
      h("p", { class: "hint" }, h("code", null, name), ` · lane ${broadcast.lane}`),
      h("div", {
        class: "progress", role: "progressbar", "aria-label": "Expanded", "aria-valuemin": "0", "aria-valuemax": "100",
        "aria-valuenow": Math.round(100 * done),
      }, filled),
      h("p", { class: "counts" }, counts.join(" · ")),
      isOpen ? h("div", { class: "row" },
        order ? h("button", { type: "button", class: order === "confirm" ? "primary" : "plain", "data-order": order,
          onclick: () => tell(() => page.call("POST", path(`/${order}`)), `${label}: done.`) }, label) : null,
        h("button", { type: "button", class: "danger", "data-order": "cancel", onclick: async () => {
          const text = "Nobody else gets it, and what nobody has got yet is withdrawn.";
          if (await confirm("Cancel this broadcast?", text, "Cancel it")) {
            tell(() => page.call("DELETE", path("")), "Cancelled.");
          }
        } }, "Cancel")) : null);
  }

  return { element, update, every: 3_000 };
}
