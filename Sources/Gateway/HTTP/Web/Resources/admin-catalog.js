// Carillon · admin-catalog.js
// SPDX-License-Identifier: Apache-2.0

import { card, fill, pill, span, table, when } from "./admin-parts.js";
import { h } from "./dom.js";

const columns = ["Type", "Category", "Severity", "Lane", "Channels", "Quiet hours", "Time to live", ""];
const severities = { alert: "bad", warning: "warn" };

/** The view of the catalog, with a button that reloads it. */
export function catalog(page) {
  const head = h("div");
  const types = h("div");
  const fault = h("div", { role: "alert" });
  const reload = h("button", { type: "button", class: "plain", onclick: () => read() }, "Reload the files");
  const element = h("div", { class: "view" }, card("Current catalog", head, fault, h("div", { class: "row" }, reload)),
    card("Types", types));

  async function update() {
    const found = await page.call("GET", "/v1/admin/catalog");
    fill(head, [found.digest, found.loaded_at, found.refused], () => [
      h("p", { class: "counts" }, `${found.types.length} types · digest `, h("code", null, found.digest.slice(0, 16)),
        " · read ", when(found.loaded_at)),
      found.refused ? faults("A newer catalog was rejected", found.refused.faults) : h("span"),
    ]);
    fill(types, found.types, () => table("Types", columns, found.types.map((type) => [
      h("code", null, type.name), type.category ?? "–", pill(type.severity, severities[type.severity]), type.lane,
      type.channels.join(", "), type.quiet_hours, span(type.time_to_live),
      [type.required ? pill("required") : "", type.enabled ? "" : pill("disabled", "warn"), type.default ? "" : pill("opt-in")],
    ]), "The catalog is empty."));
  }

  async function read() {
    fault.replaceChildren();
    reload.disabled = true;
    try {
      const found = await page.call("POST", "/v1/admin/catalog/reload");
      page.tell(found.outcome === "replaced" ? `Reloaded, and notified ${found.told} processes.` : "The files have not changed.");
    } catch (error) {
      if (error.kind !== "refused") throw error;
      fault.replaceChildren(faults(error.message, error.faults.map(({ reason }) => reason)));
    } finally {
      reload.disabled = false;
    }
    page.refresh();
  }

  return { element, update, every: 30_000 };
}

function faults(title, list) {
  return h("div", { class: "faults" }, h("p", { class: "fault" }, title), h("ul", null, list.map((text) => h("li", null, text))));
}
