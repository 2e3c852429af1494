// Carillon · admin-catalog.js
// SPDX-License-Identifier: Apache-2.0

import { address, Field } from "./admin-forms.js";
import { card, fill, number, pill, span, table, when } from "./admin-parts.js";
import { typeView } from "./admin-type.js";
import { channelList } from "./admin-words.js";
import { h, set } from "./dom.js";

const columns = ["Type", "Category", "Severity", "Lane", "Channels", "Quiet hours", "Time to live", "#Stored, 24 h", "Flags"];
const severities = { alert: "bad", warning: "warn" };
const pageSize = 100;

/** The view of the catalog, `#catalog?q=…`; `#catalog/TYPE` shows a type. */
export function catalog(page, [type = ""], query) {
  return type ? typeView(page, type, query) : catalogView(page, query);
}

/** The types with their usage, the advice, and a button that reloads the files. */
function catalogView(page, query) {
  const head = h("div");
  const types = h("div");
  const advice = h("div");
  const fault = h("div", { role: "alert" });
  const matches = h("p", { class: "hint", role: "status" });
  const reload = h("button", { type: "button", class: "plain", onclick: () => read() }, "Reload the files");
  const more = h("button", { type: "button", class: "plain", hidden: true, onclick: () => {
    shown += pageSize;
    list();
    types.querySelectorAll("tbody a")[shown - pageSize]?.focus();
  } }, "Show more");
  const filter = new Field("Filter by name, title, category or channel", h("input", {
    name: "q", type: "search", maxlength: 128, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
  }));
  filter.value = query.get("q");
  const form = h("form", { class: "filters-form", role: "search" }, filter.element);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    shown = pageSize;
    list();
  });
  form.addEventListener("change", () => history.replaceState(null, "", address("catalog", { q: filter.value })));
  const element = h("div", { class: "view" }, card("Current catalog", head, fault, h("div", { class: "row" }, reload)),
    advice, card("Types", form, types, h("div", { class: "row" }, more, matches)));
  let found = null;
  let shown = pageSize;

  async function update() {
    found = await page.call("GET", "/v1/admin/catalog");
    fill(head, [found.digest, found.loaded_at, found.refused], () => [
      h("p", { class: "counts" }, `${found.types.length} types · digest `, h("code", null, found.digest.slice(0, 16)),
        " · read ", when(found.loaded_at)),
      found.refused ? faults("A newer catalog was rejected", found.refused.faults) : h("span"),
    ]);
    fill(advice, found.advice ?? [], () => (found.advice?.length ? adviceCard(found.advice) : []));
    list();
  }

  function list() {
    if (!found) return;
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (type) => [type.name, type.title, type.category, ...type.channels, channelList(type.channels)].join(" ").toLowerCase();
    const matching = found.types.filter((type) => words.every((word) => text(type).includes(word)));
    fill(types, matching.slice(0, shown), () => typeTable(matching.slice(0, shown), words.length > 0));
    more.hidden = matching.length <= shown;
    const said = words.length ? `${number(matching.length)} of ${number(found.types.length)} types match.` : "";
    if (matches.textContent !== said) matches.textContent = said;
  }

  async function read() {
    if (reload.ariaDisabled) return;
    fault.replaceChildren();
    set(reload, { "aria-disabled": "true" });
    await page.perform(async () => {
      try {
        const answer = await page.call("POST", "/v1/admin/catalog/reload");
        page.tell(answer.outcome === "replaced" ? `Reloaded, and notified ${answer.told} processes.` : "The files have not changed.");
      } catch (error) {
        if (error.kind !== "refused" || error.status === 403) throw error;
        fault.replaceChildren(faults(error.message, error.faults.map(({ reason }) => reason)));
      }
    });
    set(reload, { "aria-disabled": null });
    page.refresh();
  }

  return { element, update, every: 30_000 };
}

const typeLink = (name) => h("a", { href: `#catalog/${encodeURIComponent(name)}` }, h("code", null, name));

function typeTable(types, isFiltered) {
  return table("Types", columns, types.map((type) => [
    [typeLink(type.name), type.title ? h("div", { class: "hint" }, type.title) : ""],
    type.category ?? "–", pill(type.severity, severities[type.severity]), type.lane,
    h("span", { class: "nowrap" }, channelList(type.channels)), type.quiet_hours, span(type.time_to_live), number(type.sent),
    [type.required ? pill("required") : "", type.enabled ? "" : pill("disabled", "warn"), type.default ? "" : pill("opt-in")],
  ]), isFiltered ? "No type matches the filter." : "The catalog is empty.");
}

/** The advice on the catalog; a line about a type leads to it. */
function adviceCard(list) {
  return card(`Advice (${number(list.length)})`, h("ul", { class: "advice" }, list.map((text) => {
    const [, before, name, after] = /^(type )([^:,\s]+)(.*)$/s.exec(text) ?? [];
    return h("li", null, name ? [before, typeLink(name), after] : text);
  })));
}

function faults(title, list) {
  return h("div", { class: "faults" }, h("p", { class: "fault" }, title), h("ul", null, list.map((text) => h("li", null, text))));
}
