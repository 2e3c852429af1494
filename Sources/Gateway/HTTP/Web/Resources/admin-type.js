// Carillon · admin-type.js
// SPDX-License-Identifier: Apache-2.0

import { address, showFaults } from "./admin-forms.js";
import { card, facts, fill, number, span } from "./admin-parts.js";
import { Previews, TextInputs } from "./admin-preview.js";
import { channelList } from "./admin-words.js";
import { h, readable } from "./dom.js";

/** The view of a type, `#catalog/TYPE?title=…`: its settings, and its texts for a sample job. */
export function typeView(page, name, query) {
  const head = h("div");
  const text = new TextInputs(query);
  const previews = new Previews();
  const fault = h("p", { class: "fault wide", role: "alert" });
  const form = h("form", { class: "simulate-form type-form" }, text.elements, fault,
    h("div", { class: "row wide" }, h("button", { type: "submit", class: "primary" }, "Preview"),
      h("a", { class: "plain", href: address("broadcasts/new", { type: name }) }, "Compose a broadcast"),
      h("span", { class: "hint" }, "Nothing is stored or sent.")));
  const settings = card(name, head, h("p", { class: "row" }, h("a", { href: "#catalog" }, "All types")));
  const element = h("div", { class: "view type" }, settings);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    history.replaceState(null, "", address(`catalog/${encodeURIComponent(name)}`, text.values));
    preview();
  });
  let isShown = false;
  let type = null;

  async function update() {
    const [{ types }] = await Promise.all([page.call("GET", "/v1/admin/catalog"), previews.load(page)]);
    type = types.find((one) => one.name === name);
    fill(head, type ?? null, () => (type ? settingsOf(type) : h("p", { class: "fault" }, "The catalog has no such type.")));
    if (!type || isShown) return;
    isShown = true;
    // A type with texts of its own needs values for them instead.
    if (text.isEmpty && !type.locales?.length) {
      text.set("title", "A sample of the title");
      text.set("body", "A sample of the body, which may be **longer**.");
    }
    element.append(card("Sample", form, previews.element));
    await preview(false);
  }

  async function preview(isAsked = true) {
    fault.textContent = "";
    const content = text.read();
    if (!content) return;
    const sample = text.isEmpty ? { ...content, vars: {} } : content;
    await page.perform(async () => {
      try {
        const job = { type: name, ...sample };
        const found = await page.call("POST", "/v1/admin/previews", { job });
        previews.show(found.previews, job, type);
      } catch (error) {
        if (error.kind !== "refused" || error.status === 403) throw error;
        previews.clear();
        fault.textContent = showFaults(error, text.fields, isAsked);
      }
    });
  }

  return { element, update, every: 30_000 };
}

function settingsOf(type) {
  const cap = (found) => (found ? `${number(found.count)} per ${span(found.per)}` : "none");
  return facts([
    ["Title", type.title ?? readable(type.name)], ["Category", type.category ?? "none"], ["Severity", type.severity],
    ["Lane", type.lane], ["Channels", channelList(type.channels)], ["Quiet hours", type.quiet_hours],
    ["Time to live", span(type.time_to_live)], ["Cap", cap(type.cap)], ["Cap of the category", cap(type.category_cap)],
    ["E-mail after", type.email_after == null ? "–" : span(type.email_after)],
    ["Texts of its own", type.locales?.length ? type.locales.join(", ") : "none"],
    ["Users", type.required ? "required: nobody can switch it off" : type.default === false ? "off unless a user switches it on" : "on by default"],
    ["State", type.enabled === false ? "switched off" : "enabled"], ["Stored, last 24 h", number(type.sent)],
  ], "facts");
}
