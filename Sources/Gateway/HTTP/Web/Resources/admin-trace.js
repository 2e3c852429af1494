// Carillon · admin-trace.js
// SPDX-License-Identifier: Apache-2.0

import { card, detailsOf, facts, jobAddress, jobLink, personLink, pill, reasonText, timeline } from "./admin-parts.js";
import { Resend } from "./admin-resend.js";
import { channelList, channelName, statusKinds, stepName, wayWords } from "./admin-words.js";
import { h, readable } from "./dom.js";
import { marked, unmarked } from "./marks.js";

const unknown = "Not found. Without a user, the search finds only notifications that were sent, or stored within ten minutes of the time in their id.";

/** A hyphenated UUID. Those of version 4 are ids that the gateway gave to jobs. */
const isNotification = (id) => /^[0-9a-f]{8}-[0-9a-f]{4}-[0-35-9a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(id);

/** The view of a trace: why a notification did or did not reach its user. Jobs have their own. */
export function trace(page, [id = "", user = ""]) {
  const idField = h("input", {
    name: "id", required: true, maxlength: 128, value: id, spellcheck: "false", autocomplete: "off", placeholder: "0192…", size: 38,
  });
  const userField = h("input", { name: "user", value: user, autocomplete: "off", maxlength: 128 });
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "filters-form" },
    h("label", { class: "field wide" }, h("span", null, "Notification, job or entry"), idField),
    h("label", { class: "field" }, h("span", null, "User (optional)"), userField),
    h("button", { type: "submit", class: "primary" }, "Trace"));
  let resend = null;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [wanted, owner] = [idField.value.trim(), userField.value.trim()];
    if (!wanted) return;
    const goal = owner || isNotification(wanted)
      ? `#trace/${encodeURIComponent(wanted)}/${encodeURIComponent(owner)}` : jobAddress(wanted);
    if (location.hash === goal) page.refresh();
    else location.hash = goal;
  });

  async function look() {
    if (!id) return;
    if (!user && !isNotification(id)) return location.replace(jobAddress(id));
    const query = user ? `?user=${encodeURIComponent(user)}` : "";
    try {
      const found = await page.call("GET", `/v1/admin/notifications/${encodeURIComponent(id)}/trace${query}`);
      const title = found.notification.title || id;
      // Stays when the page looks again, with its answer.
      resend ??= new Resend(page, { id, user: found.user_id, title, org: found.org_id });
      result.replaceChildren(view(found, resend));
    } catch (error) {
      if (error.kind !== "refused" || error.status === 403) throw error;
      result.replaceChildren(h("p", { class: "fault" }, error.status === 404 ? unknown : page.explain(error)),
        error.status === 404 ? h("p", null, h("a", { href: jobAddress(id) }, "Look for a job with this id")) : "");
    }
  }

  return { element: h("div", { class: "view" }, card("Trace a notification", form), result), update: look };
}

function view(found, resend) {
  const { notification } = found;
  const known = [
    ["User", personLink(found.user_id)], ["Type", readable(notification.type)], ["Channels", channelList(found.channels)],
    ["Sent", found.sent_via && wayWords(found.sent_via)], ["Held back", found.held_back && reasonText(found.held_back)],
    ["Reason", found.reason && reasonText(found.reason)],
    ["Job", found.job_id && jobLink(found.job_id, found.org_id)],
    // Use one address per job, so that its view knows what “Resend all” has sent.
    ["Entry", found.job_entry && (found.job_id ? h("code", null, found.job_entry) : jobLink(found.job_entry, found.org_id))],
  ].filter(([, value]) => value);
  return card(unmarked(notification.title) || readable(notification.type),
    h("p", { class: "counts" }, pill(found.status, statusKinds[found.status]), " ", marked(notification.body)),
    facts(known, "facts"), h("div", { class: "resending" }, resend.button, resend.answer),
    timeline(found.steps.map((step) => ({
      at: step.at, title: title(step), kind: kind(step), details: detailsOf(isSend(step) ? { ...step, outcome: null } : step),
    })), "What happened"));
}

/** Whether a step is a request to a provider; its title names the outcome. */
const isSend = ({ event }) => ["push", "email"].includes(event);

function title(step) {
  return isSend(step) ? `${channelName(step.event)}: ${step.outcome}` : stepName(step.event);
}

function kind(step) {
  if (step.outcome === "failed") return "bad";
  if (["delivered", "opened", "read"].includes(step.event) || step.outcome === "accepted") return "good";
  return step.event === "held_back" || step.outcome === "retry" || step.event === "due" ? "warn" : "";
}
