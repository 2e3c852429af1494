// Carillon · admin-dead-letters.js
// SPDX-License-Identifier: Apache-2.0

import { card, confirm, fill, number, pill, when } from "./admin-parts.js";
import { h } from "./dom.js";

/** The view of dead letters: list, replay, discard. */
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
    shown = Object.fromEntries(
      [["reason", reason.value.trim()], ["type", type.value.trim()]].filter(([, value]) => value));
    older = [];
    page.refresh();
  });
  const element = h("div", { class: "view" }, card("Jobs and deliveries that were given up", form, list, more));
  let older = [];
  let cursor = null;
  /** The filter of the current list. Typed text takes effect when the form is submitted. */
  let shown = {};

  /** Returns the current filter, limited to letters that exist now, with their count. */
  async function chosen() {
    const filter = { ...shown, until: new Date().toISOString() };
    const answer = await page.call("GET", `/v1/admin/dead-letters?${new URLSearchParams({ ...filter, limit: 1, count: true })}`);
    const words = [shown.reason ? `whose reason begins with “${shown.reason}”` : null, shown.type ? `of type ${shown.type}` : null];
    return { filter, words: words.filter(Boolean).join(" and "), ...answer };
  }

  async function update() {
    const first = await page.call("GET", `/v1/admin/dead-letters?${new URLSearchParams({ ...shown, limit: 25 })}`);
    if (!older.length) cursor = first.next_cursor;
    const known = new Set(first.dead_letters.map((letter) => letter.id));
    show([...first.dead_letters, ...older.filter((letter) => !known.has(letter.id))]);
  }

  async function loadMore() {
    await page.perform(async () => {
      const next = await page.call("GET", `/v1/admin/dead-letters?${new URLSearchParams({ ...shown, limit: 25, cursor })}`);
      older = [...older, ...next.dead_letters];
      cursor = next.next_cursor;
    });
    page.refresh();
  }

  function show(found) {
    more.hidden = !cursor;
    fill(list, found, () => found.length ? found.map(letterView) : h("p", { class: "hint empty" }, "No dead letters."));
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
          letter.replay_at ? pill("replaying", "warn") : null)),
      h("details", null, h("summary", null, "Fields"), h("pre", null, lines(letter.fields))),
      h("div", { class: "row" },
        h("button", { type: "button", class: "plain replay", disabled: Boolean(letter.replay_at),
          onclick: () => act(() => page.call("POST", `${path}/replay`), "Replaying: it returns to its stream.") }, "Replay"),
        h("button", { type: "button", class: "plain", onclick: async () => {
          if (await confirm("Discard this dead letter?", "This deletes it with all its fields.", "Discard")) {
            act(() => page.call("DELETE", path), "Discarded.");
          }
        } }, "Discard")));
  }

  async function replayMany() {
    await page.perform(async () => {
      const { filter, words, count, replayable } = await chosen();
      const others = count - replayable;
      const text = `${letters(replayable)} ${words} ${replayable === 1 ? "returns to its stream" : "return to their streams"}, at 100 a second.`
        + (others ? ` ${letters(others)} more ${others === 1 ? "is" : "are"} replaying already, or cannot be replayed.` : "");
      if (!(await confirm(`Replay ${letters(replayable)}?`, text, `Replay ${number(replayable)}`))) return;
      const done = await page.call("POST", "/v1/admin/dead-letters/replay", filter);
      page.tell(`Replaying ${letters(done.count)}.`);
    });
    page.refresh();
  }

  async function discardMany() {
    await page.perform(async () => {
      const { filter, words, count } = await chosen();
      const text = `This deletes ${letters(count)} ${words} with all fields.`;
      if (!(await confirm(`Discard ${letters(count)}?`, text, `Discard ${number(count)}`))) return;
      const done = await page.call("DELETE", `/v1/admin/dead-letters?${new URLSearchParams(filter)}`);
      page.tell(`${letters(done.count)} discarded.`);
      older = [];
    });
    page.refresh();
  }

  return {
    element,
    update,
    // A replay takes a second or so.
    get every() { return list.querySelector(".replay:disabled") ? 1_000 : 10_000; },
  };
}

const letters = (count) => `${number(count)} ${count === 1 ? "dead letter" : "dead letters"}`;

/** Formats the fields of a job or delivery, one per line. */
function lines(fields) {
  return fields.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n");
}

function field(label, input) {
  return h("label", { class: "field" }, h("span", null, label), input);
}
