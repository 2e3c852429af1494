// Carillon · admin-dead-letters.js
// SPDX-License-Identifier: Apache-2.0

import { card, confirm, fill, pill, when } from "./admin-parts.js";
import { h } from "./dom.js";

/** Work that was set aside: looked through, brought back, thrown away. */
export function deadLetters(page) {
  const list = h("div", { class: "letters" });
  const more = h("button", { type: "button", class: "plain", hidden: true, onclick: () => loadMore() }, "Show older");
  const reason = h("input", { name: "reason", placeholder: "type: is not", maxlength: 200 });
  const type = h("input", { name: "type", maxlength: 128 });
  const form = h("form", { class: "filters-form" }, field("Reason begins with", reason), field("Type", type),
    h("button", { type: "submit", class: "plain" }, "Filter"),
    h("button", { type: "button", class: "plain", onclick: () => replayMany() }, "Replay these"),
    h("button", { type: "button", class: "danger", onclick: () => discardMany() }, "Discard these"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    older = [];
    page.refresh();
  });
  const element = h("div", { class: "view" }, card("What could not be understood or sent", form, list, more));
  let older = [];
  let cursor = null;

  const filter = () => Object.fromEntries(
    [["reason", reason.value.trim()], ["type", type.value.trim()]].filter(([, value]) => value));
  /** What an order about many of them is about; all of them must be said. */
  const chosen = () => (Object.keys(filter()).length ? filter() : { all: true });
  const named = () => (chosen().all ? "All of them" : "All that the filter names");

  async function update() {
    const first = await page.call("GET", `/v1/admin/dead-letters?${new URLSearchParams({ ...filter(), limit: 25 })}`);
    if (!older.length) cursor = first.next_cursor;
    const known = new Set(first.dead_letters.map((letter) => letter.id));
    show([...first.dead_letters, ...older.filter((letter) => !known.has(letter.id))]);
  }

  async function loadMore() {
    await page.perform(async () => {
      const next = await page.call("GET", `/v1/admin/dead-letters?${new URLSearchParams({ ...filter(), limit: 25, cursor })}`);
      older = [...older, ...next.dead_letters];
      cursor = next.next_cursor;
    });
    page.refresh();
  }

  function show(letters) {
    more.hidden = !cursor;
    fill(list, letters, () => letters.length ? letters.map(letterView) : h("p", { class: "hint empty" }, "There are none."));
  }

  function letterView(letter) {
    const path = `/v1/admin/dead-letters/${letter.id}`;
    const act = async (work, text) => {
      older = older.filter((other) => other.id !== letter.id);
      await page.perform(work, text);
      page.refresh();
    };
    return h("article", { class: "letter", "data-id": letter.id },
      h("div", { class: "letter-head" },
        h("p", { class: "reason" }, letter.reason),
        h("p", { class: "hint" }, h("code", null, letter.stream), " · ", when(letter.at), " ",
          letter.replay_at ? pill("on its way back", "warn") : null)),
      h("details", null, h("summary", null, "Fields"), h("pre", null, lines(letter.fields))),
      h("div", { class: "row" },
        h("button", { type: "button", class: "plain replay", disabled: Boolean(letter.replay_at),
          onclick: () => act(() => page.call("POST", `${path}/replay`), "It goes back to its stream.") }, "Replay"),
        h("button", { type: "button", class: "plain", onclick: async () => {
          if (await confirm("Discard this letter?", "What it holds is gone then.", "Discard")) {
            act(() => page.call("DELETE", path), "Discarded.");
          }
        } }, "Discard")));
  }

  async function replayMany() {
    if (!(await confirm("Replay these letters?", `${named()} go back to their streams, 100 a second.`, "Replay"))) return;
    await page.perform(() => page.call("POST", "/v1/admin/dead-letters/replay", chosen()), ({ count }) => `${count} go back.`);
    page.refresh();
  }

  async function discardMany() {
    if (!(await confirm("Discard these letters?", `${named()} are gone then.`, "Discard"))) return;
    const path = `/v1/admin/dead-letters?${new URLSearchParams(chosen())}`;
    await page.perform(() => page.call("DELETE", path), ({ count }) => `${count} discarded.`);
    older = [];
    page.refresh();
  }

  return { element, update, every: 10_000 };
}

/** A job's or delivery's fields, one a line. */
function lines(fields) {
  return fields.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n");
}

function field(label, input) {
  return h("label", { class: "field" }, h("span", null, label), input);
}
