// Carillon · admin-trace.js
// SPDX-License-Identifier: Apache-2.0

import { card, facts, personLink, pill, timeline } from "./admin-parts.js";
import { statusKinds } from "./admin-words.js";
import { h, readable } from "./dom.js";

const unknown = "Not found. Without a user, the search finds only notifications that were sent, or stored within ten minutes of the time in their id.";

/** The view of a trace: why a notification did or did not reach its user. */
export function trace(page, [id = "", user = ""]) {
  const idField = h("input", {
    name: "id", required: true, value: id, spellcheck: "false", autocomplete: "off", placeholder: "0192…", size: 38,
  });
  const userField = h("input", { name: "user", value: user, autocomplete: "off", maxlength: 128 });
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "filters-form" },
    h("label", { class: "field wide" }, h("span", null, "Notification"), idField),
    h("label", { class: "field" }, h("span", null, "User (optional)"), userField),
    h("button", { type: "submit", class: "primary" }, "Trace"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const goal = `#trace/${encodeURIComponent(idField.value.trim())}/${encodeURIComponent(userField.value.trim())}`;
    if (location.hash === goal) look();
    else location.hash = goal;
  });

  async function look() {
    if (!id) return;
    const query = user ? `?user=${encodeURIComponent(user)}` : "";
    try {
      result.replaceChildren(view(await page.call("GET", `/v1/admin/notifications/${encodeURIComponent(id)}/trace${query}`)));
    } catch (error) {
      if (error.kind !== "refused" || error.status === 403) throw error;
      result.replaceChildren(h("p", { class: "fault" }, error.status === 404 ? unknown : page.explain(error)));
    }
  }

  return { element: h("div", { class: "view" }, card("Trace a notification", form), result), update: look };
}

function view(found) {
  const { notification } = found;
  const known = [
    ["User", personLink(found.user_id)], ["Type", notification.type], ["Channels", found.channels.join(", ")], ["Sent via", found.sent_via],
    ["Held back", found.held_back], ["Reason", found.reason], ["Job", found.job_id], ["Entry", found.job_entry],
  ].filter(([, value]) => value);
  return card(notification.title || readable(notification.type),
    h("p", { class: "counts" }, pill(found.status, statusKinds[found.status]), " ", notification.body),
    facts(known, "facts"),
    timeline(found.steps.map((step) => ({
      at: step.at, title: title(step), kind: kind(step),
      details: Object.entries(step).filter(([name]) => !["at", "event"].includes(name))
        .map(([name, value]) => [readable(name), value]),
    })), "What happened"));
}

function title(step) {
  return step.event === "push" ? `Push: ${step.outcome}` : readable(step.event);
}

function kind(step) {
  if (step.outcome === "failed") return "bad";
  if (["delivered", "opened", "read"].includes(step.event) || step.outcome === "accepted") return "good";
  return step.event === "held_back" || step.outcome === "retry" || step.event === "due" ? "warn" : "";
}
