// Carillon · admin-broadcasts.js
// SPDX-License-Identifier: Apache-2.0

import { card, confirm, fill, number, pill, share, when } from "./admin-parts.js";
import { h, readable } from "./dom.js";

const kinds = { expanding: "warn", counting: "warn", awaiting_confirmation: "warn", done: "good", failed: "bad" };

/** What each state can be told, besides being cancelled. */
const orders = { awaiting_confirmation: ["confirm", "Confirm"], counting: ["pause", "Pause"], expanding: ["pause", "Pause"], paused: ["resume", "Resume"] };

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
    fill(list, found, () => found.length ? found.map(view) : h("p", { class: "hint empty" }, "There were none in the last 90 days."));
  }

  function loadMore() {
    pages += 1;
    page.refresh();
  }

  function view(broadcast) {
    const path = (verb) => `/v1/jobs/${encodeURIComponent(broadcast.job_id)}${verb}${broadcast.org ? `?org=${encodeURIComponent(broadcast.org)}` : ""}`;
    const tell = async (work, text) => {
      await page.perform(work, text);
      page.refresh();
    };
    const [order, label] = orders[broadcast.state] ?? [];
    const isOpen = order || broadcast.held;
    const done = broadcast.audience ? Math.min(1, broadcast.selected / broadcast.audience) : broadcast.chains_done / 16;
    const filled = h("span", { class: "filled" });
    filled.style.inlineSize = `${Math.round(100 * (broadcast.state === "done" ? 1 : done))}%`;
    const left = Object.entries(broadcast.not_stored ?? {}).map(([reason, count]) => `${number(count)} ${readable(reason).toLowerCase()}`);
    return h("article", { class: "broadcast", "data-job": broadcast.job_id },
      h("div", { class: "broadcast-head" },
        h("h3", null, broadcast.topic ? `Topic ${broadcast.topic}` : "Everyone"),
        pill(broadcast.held && broadcast.state === "expanding" ? "held back" : readable(broadcast.state).toLowerCase(), kinds[broadcast.state] ?? "plain"),
        h("span", { class: "hint" }, when(broadcast.created_at))),
      h("p", { class: "hint" }, h("code", null, broadcast.org ? `${broadcast.org}/${broadcast.job_id}` : broadcast.job_id), ` · lane ${broadcast.lane}`),
      h("div", { class: "progress", role: "progressbar", "aria-label": "Expanded", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": Math.round(100 * done) }, filled),
      h("p", { class: "counts" }, `${number(broadcast.stored)} stored of ${number(broadcast.audience)}`,
        broadcast.audience ? ` (${share(broadcast.stored, broadcast.audience)})` : "", left.length ? ` · ${left.join(", ")}` : "",
        broadcast.withdrawn ? ` · ${number(broadcast.withdrawn)} withdrawn` : "", broadcast.reason ? ` · ${broadcast.reason}` : ""),
      isOpen ? h("div", { class: "row" },
        order ? h("button", { type: "button", class: order === "confirm" ? "primary" : "plain", "data-order": order,
          onclick: () => tell(() => page.call("POST", path(`/${order}`)), `${label}: done.`) }, label) : null,
        h("button", { type: "button", class: "danger", "data-order": "cancel", onclick: async () => {
          if (await confirm("Cancel this broadcast?", "Nobody else gets it, and what nobody has got yet is withdrawn.", "Cancel it")) {
            tell(() => page.call("DELETE", path("")), "Cancelled.");
          }
        } }, "Cancel")) : null);
  }

  return { element, update, every: 3_000 };
}
