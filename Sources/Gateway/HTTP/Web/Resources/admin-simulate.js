// Carillon · admin-simulate.js
// SPDX-License-Identifier: Apache-2.0

import { card, facts, number, timeline } from "./admin-parts.js";
import { h, readable } from "./dom.js";

const presences = { actual: "as now", offline: "offline", online: "online and looking", idle: "online, but away" };

/** The view that simulates what a user would get for a job, and when. A user may be filled in. */
export function simulate(page, [name = ""]) {
  const user = h("input", { name: "user", required: true, value: name, maxlength: 128, autocomplete: "off" });
  const type = h("select", { name: "type", required: true });
  const title = h("input", { name: "title", required: true, value: "A test", maxlength: 255 });
  const at = h("input", { name: "at", type: "datetime-local" });
  const presence = h("select", { name: "presence" }, Object.entries(presences).map(([value, text]) => h("option", { value }, text)));
  const proven = h("input", { name: "proven", type: "checkbox" });
  proven.checked = true;
  const more = h("textarea", {
    name: "more", rows: 3, spellcheck: "false", placeholder: '{"channels": ["push"], "severity": "alert"}',
  });
  const fault = h("p", { class: "fault", role: "alert" });
  const result = h("div", { "aria-live": "polite" });
  const field = (label, input, name = "field") => h("label", { class: name }, h("span", null, label), input);
  const form = h("form", { class: "simulate-form" }, field("User", user), field("Type", type), field("Title", title),
    field("Time (your time zone; now if empty)", at), field("The user is", presence),
    field("More job fields, as JSON", more, "field wide"),
    h("label", { class: "check wide" }, proven, " Sockets prove receipt"), fault,
    h("div", { class: "row wide" }, h("button", { type: "submit", class: "primary" }, "Simulate"),
      h("span", { class: "hint" }, "Nothing is stored, counted or sent.")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });

  let isLoaded = false;
  async function update() {
    if (isLoaded) return;
    const { types } = await page.call("GET", "/v1/admin/catalog");
    type.replaceChildren(...types.map(({ name }) => h("option", { value: name }, name)));
    isLoaded = true;
  }

  async function run() {
    fault.textContent = "";
    let job = { type: type.value, title: title.value };
    try {
      if (more.value.trim()) job = { ...job, ...JSON.parse(more.value) };
    } catch {
      fault.textContent = "More fields: not valid JSON.";
      return;
    }
    const body = { user: user.value, job, presence: presence.value, proven: proven.checked };
    if (at.value) body.at = new Date(at.value).toISOString();
    try {
      result.replaceChildren(view(await page.call("POST", "/v1/admin/simulate", body)));
    } catch (error) {
      if (error.kind !== "refused") throw error;
      fault.textContent = page.explain(error);
    }
  }

  return { element: h("div", { class: "view" }, card("What would a user get?", form), result), update };
}

function view(found) {
  const quiet = found.quiet_until && new Date(found.quiet_until).toLocaleString(document.documentElement.lang);
  // Without steps, every channel has the same reason.
  const absence = found.steps.length === 0 && readable(found.channels[0]?.reason ?? "nothing");
  const known = [
    ["User", found.user_id], ["Zone", found.zone ?? "not set"], ["Devices", number(found.devices)], ["Quiet until", quiet],
    ["Gets nothing", absence],
  ].filter(([, value]) => value);
  return card("Result", facts(known, "facts"),
    timeline(found.steps.map((step) => ({
      at: step.at, title: readable(step.step), kind: kind(step),
      details: Object.entries(step).filter(([name, value]) => !["at", "step"].includes(name) && value !== null && value !== "")
        .map(([name, value]) => [readable(name), value]),
    })), "Steps"));
}

function kind({ step, status }) {
  if (["push", "publish", "email"].includes(step)) return "good";
  if (["schedule", "gather", "postpone", "hold_back", "wait", "publish_silently"].includes(step)) return "warn";
  return ["suppressed", "expired", "failed"].includes(status) ? "bad" : "";
}
