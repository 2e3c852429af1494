// Carillon · admin-job.js
// SPDX-License-Identifier: Apache-2.0

import { address } from "./admin-forms.js";
import { NotificationHistory, ofJob } from "./admin-history.js";
import { card, confirm, facts, fill, number, orFault, pill, share, table, when } from "./admin-parts.js";
import { JobResends } from "./admin-resend.js";
import { statusKinds } from "./admin-words.js";
import { h, readable } from "./dom.js";
import { unmarked } from "./marks.js";

/** A cancellation's status in words. */
const outcomes = {
  cancelled: "The job is cancelled.",
  cancelling: "The broadcast is being withdrawn.",
  too_late: "Too late: every recipient already has it.",
  not_sent: "No recipient would have got it.",
  pending: "Nothing of the job is stored yet. If it comes while the cancellation is kept, it is stored as cancelled.",
};

const reachNames = {
  stored: "Stored", no_device: "No device", accepted: "Accepted by a provider", failed: "Failed", delivered: "Delivered",
  opened: "Opened", read: "Read",
};

/** A job: how it stands, its notifications, and the orders for it. */
export class Job {
  #page;
  #id;
  #org;
  #query;
  #history;
  /** One of its notifications, whatever the filter. */
  #example;
  #resends;
  /** The milliseconds to the next poll; longer for a large job, which takes a while to count. */
  #pause = 5_000;
  /** The answers without counts in a row; only every thirtieth call asks for counts again. */
  #uncounted = 0;
  #fault = h("p", { class: "fault", role: "alert" });
  #head = h("div", { class: "job-head" });
  #numbers = h("div", { class: "job-numbers" });
  #said = h("div", { class: "answer", role: "status" });
  #cancel = h("button", { type: "button", class: "danger cancel", onclick: () => this.#cancelJob() }, "Cancel the job");
  #known = h("div", { class: "view", hidden: true });

  constructor(page, id, query) {
    this.#page = page;
    this.#id = id;
    this.#org = query.get("org") ?? "";
    this.#query = query;
    this.#resends = JobResends.of(page, id, this.#org);
    this.#history = new NotificationHistory(page, ofJob(id, this.#org), query);
    this.#known.append(card("By status", this.#resends.element, this.#numbers), card("Notifications", this.#history.element));
    this.element = h("div", { class: "view job", "data-job": id },
      card(id, this.#fault, this.#head, this.#said, h("div", { class: "row" }, this.#cancel)), this.#known);
  }

  get every() { return this.#pause; }

  get #path() {
    const query = this.#org ? `?${new URLSearchParams({ org: this.#org })}` : "";
    return `/v1/jobs/${encodeURIComponent(this.#id)}${query}`;
  }

  async update() {
    const begin = performance.now();
    const answer = await orFault(this.#page, this.#fault, async () => {
      const counted = this.#uncounted % 30 ? `${this.#org ? "&" : "?"}recipients=false` : "";
      const [found] = await Promise.all([
        this.#page.callIfThere(this.#path + counted), this.#findExample(), this.#history.update(),
      ]);
      return { found };
    });
    if (!answer) return;
    const { found } = answer;
    const example = this.#example;
    const own = found?.broadcast?.job_id ?? example?.job_id ?? found?.id ?? this.#id;
    if (own !== this.#id) {
      // Use one address per job, so that its view knows what “Resend all” has sent.
      if (this.element.isConnected) {
        location.replace(address(`jobs/${encodeURIComponent(own)}`, Object.fromEntries(this.#query)));
      }
      return;
    }
    this.#uncounted = found?.broadcast && !found.recipients ? this.#uncounted + 1 : 0;
    this.#pause = Math.max(found?.final ? 30_000 : 5_000, Math.min(60_000, 20 * (performance.now() - begin)));
    this.#known.hidden = !found;
    this.#cancel.hidden = Boolean(found?.cancelled_at);
    fill(this.#head, [found, example?.type, example?.title], () =>
      (found ? this.#headOf(found, example) : this.#unknown()));
    if (found) fill(this.#numbers, [found.recipients, found.reach], () => this.#numbersOf(found));
  }

  async #findExample() {
    const query = new URLSearchParams({ ...(this.#org ? { org: this.#org } : {}), limit: 1 });
    this.#example ??= (await this.#page.callIfThere(`${ofJob(this.#id).path}?${query}`))?.notifications[0];
  }

  #headOf(found, example) {
    const { broadcast } = found;
    const type = broadcast?.type ?? example?.type;
    const title = broadcast ? broadcast.title : example?.title;
    // A cancelled broadcast may have skipped users; nothing is stored about them.
    const isTooLate = found.final && !broadcast && found.recipients && !found.recipients.cancelled;
    const state = found.cancelled_at && !isTooLate ? pill("cancelled", "warn") : found.final ? pill("complete", "good")
      : pill(found.recipients ? "under way" : "not counted", "warn");
    const entries = [
      ["Type", type ? readable(type) : null], ["Title", title ? unmarked(title) : null], ["Organisation", found.org],
      ["Cancelled", found.cancelled_at ? when(found.cancelled_at) : null],
      ["Waiting for their time", found.scheduled ? `${number(found.scheduled)} scheduled` : null],
      ["Broadcast", broadcast ? h("a", { href: "#broadcasts" }, broadcastWords(broadcast)) : null],
      ["Dead letters", mayHaveLetters(found) ? lettersLink(type) : null],
    ];
    return [h("p", { class: "counts" }, state), facts(entries.filter(([, value]) => value), "facts")];
  }

  #unknown() {
    return [
      h("p", { class: "job-unknown" },
        `Nothing of this job is stored or scheduled${this.#org ? ` for the organisation ${this.#org}` : ""}.`),
      h("ul", { class: "hint" },
        h("li", null, "It may wait in a stream. A cancellation that comes before a job stops it."),
        this.#org ? null : h("li", null, "If it has an organisation, enter it above."),
        h("li", null, "If it had a fault, it is among the ", h("a", { href: "#dead-letters" }, "dead letters"), ".")),
    ];
  }

  #numbersOf({ recipients, reach }) {
    if (!recipients) return h("p", { class: "hint" }, "There are too many notifications to count them in time.");
    const counts = Object.entries(recipients).filter(([, count]) => count);
    const filtered = (status) => address(`jobs/${encodeURIComponent(this.#id)}`, { org: this.#org, status });
    return [
      table("Notifications by status", ["Status", "#Notifications", "Again"], counts.map(([status, count]) => {
        const word = readable(status).toLowerCase();
        return [
          pill(word, statusKinds[status]),
          h("a", { href: filtered(status), "aria-label": `Show ${number(count)} ${word}` }, number(count)),
          h("button", {
            type: "button", class: "plain resend-all", "data-status": status, "aria-label": `Resend all ${word}`,
            onclick: () => this.#resends.send(status, count),
          }, "Resend all"),
        ];
      }), "No notification is stored."),
      ...(reach ? [h("h3", null, "How far it got"),
        facts(Object.entries(reachNames).map(([name, title]) => [title, partOf(reach, name)]), "facts reach")] : []),
    ];
  }

  async #cancelJob() {
    const text = "Notifications that are not delivered yet are withdrawn, and nothing more of the job is sent. Those who have it keep it.";
    if (!await confirm("Cancel this job?", text, "Cancel the job")) return;
    await this.#page.perform(async () => {
      try {
        this.#said.replaceChildren(...cancellation(await this.#page.call("DELETE", this.#path)));
      } catch (error) {
        this.#said.replaceChildren(h("p", { class: "fault" }, this.#page.explain(error)));
        if (error.kind !== "refused" || error.status === 403) throw error;
      }
    });
    this.#page.refresh();
  }
}

function cancellation({ status, cancelled, withdrawing, too_late: late, not_sent: unsent }) {
  const counts = [["Cancelled", cancelled], ["Being withdrawn", withdrawing], ["Too late", late], ["Not sent anyway", unsent]]
    .filter(([, count]) => count !== null);
  return [h("p", { class: "counts" }, outcomes[status] ?? readable(status)),
    ...(counts.length ? [facts(counts.map(([name, count]) => [name, number(count)]), "facts")] : [])];
}

/** A count of a reach, with its share of all that is stored. */
function partOf(reach, name) {
  const isShare = name !== "stored" && reach.stored;
  return `${number(reach[name])}${isShare ? ` (${share(reach[name], reach.stored)})` : ""}`;
}

function broadcastWords({ state, stored, audience }) {
  return `${readable(state)}, ${number(stored)} stored of ${number(audience)}`;
}

const mayHaveLetters = ({ recipients, broadcast }) =>
  Boolean(recipients?.failed || recipients?.pending || broadcast?.state === "failed" || broadcast?.not_stored?.text_failed);

const lettersLink = (type) => h("a", { href: address(`dead-letters${type ? "/letters" : ""}`, { type }) },
  type ? `Those of type ${readable(type).toLowerCase()}` : "Show them");
