// Carillon · admin-resend.js
// SPDX-License-Identifier: Apache-2.0

import { confirm, jobLink, number } from "./admin-parts.js";
import { h, readable, set } from "./dom.js";

const rules = "Current preferences, quiet hours and caps apply.";

/** A button that sends one notification again, and the answer: a link to the job that does so. */
export class Resend {
  #page;
  #notification;
  /** A click after a lost answer sends nothing twice; a click after an answer sends again. */
  #key = randomKey();
  button;
  answer = h("div", { class: "resent" });

  /** @param notification {{id: string, user: string, title: string, org?: string}} */
  constructor(page, notification) {
    this.#page = page;
    this.#notification = notification;
    this.button = h("button", {
      type: "button", class: "plain resend", "data-id": notification.id, "aria-label": `Resend: ${notification.title}`, onclick: () => this.#send(),
    }, "Resend");
  }

  async #send() {
    const { id, user, title, org } = this.#notification;
    const text = `${user} gets “${title}” again, as a new job. ${rules}`;
    if (this.button.ariaDisabled || !await confirm("Send it again?", text, "Send it again", "primary")) return;
    set(this.button, { "aria-disabled": "true" });
    await this.#page.perform(async () => {
      try {
        const query = new URLSearchParams({ user, key: this.#key });
        const job = await this.#page.call("POST", `/v1/admin/notifications/${encodeURIComponent(id)}/resend?${query}`);
        this.#key = randomKey();
        this.answer.replaceChildren("Sent again: ", jobLink(job.id, org));
        return job;
      } catch (error) {
        this.answer.replaceChildren(h("span", { class: "fault" }, this.#page.explain(error)));
        throw error;
      }
    }, (job) => `Sent again as job ${job.id}.`);
    set(this.button, { "aria-disabled": null });
  }
}

/**
 * Sends all notifications of a job with one status again, a thousand a call.
 *
 * Each job has one instance, so that a run goes on, and stays known, while other views are open.
 */
export class JobResends {
  static #known = new Map();
  static {
    // Another tab has begun a run, gone on with it or ended it.
    addEventListener("storage", ({ key }) => JobResends.#known.get(key)?.#show());
  }
  #page;
  #job;
  #name;
  #isRunning = false;
  /** The progress and the outcome. */
  element = h("p", { class: "hint resent-all", role: "status" });

  /** Returns the resends of a job. */
  static of(page, id, org) {
    const name = `carillon.resend.${JSON.stringify([org, id])}`;
    if (!JobResends.#known.has(name)) JobResends.#known.set(name, new JobResends(page, { id, org }, name));
    return JobResends.#known.get(name);
  }

  constructor(page, job, name) {
    this.#page = page;
    this.#job = job;
    this.#name = name;
    this.#show();
  }

  /**
   * The runs that are not done, by status.
   *
   * All tabs of the browser use the same keys, also after a reload: another key would send twice.
   */
  get #runs() { return JSON.parse(localStorage.getItem(this.#name)) ?? {}; }

  #show() {
    this.element.textContent = Object.entries(this.#runs).map(([status, run]) =>
      `${notifications(run.total)} with the status “${word(status)}” sent again so far.${refusedWords(run)}`
        + " “Resend all” sends the rest.").join(" ");
  }

  /**
   * Asks, then sends those with a status; after a failure it goes on where it stopped.
   *
   * @param {number} count the notifications with this status.
   */
  async send(status, count) {
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      await this.#page.perform(() => this.#go(status, count));
    } finally {
      this.#isRunning = false;
    }
  }

  async #go(status, count) {
    const { id, org } = this.#job;
    const known = this.#runs[status] ?? { key: randomKey(), cursor: null, total: 0, refused: 0 };
    const text = `Everyone who has a notification with the status “${word(status)}” gets it again, as a new job. ${rules}`;
    const rest = count - known.total - known.refused;
    if (!await confirm(`Resend ${notifications(rest)}?`, text, `Resend ${number(rest)}`)) return;
    // Another tab may have begun or gone on meanwhile.
    const run = this.#runs[status] ?? known;
    try {
      do {
        this.#keep(status, run);
        this.#tell(`${notifications(run.total)} sent again so far.${refusedWords(run)}`);
        const answer = await this.#page.call("POST", `/v1/admin/jobs/${encodeURIComponent(id)}/resend`, {
          status, key: run.key, ...(org ? { org } : {}), ...(run.cursor ? { cursor: run.cursor } : {}),
        });
        run.total += answer.count;
        run.refused += answer.refused;
        run.cursor = answer.next_cursor;
      } while (run.cursor);
      this.#keep(status);
      this.#tell(`${notifications(run.total)} sent again.${refusedWords(run)}`, true);
    } catch (error) {
      this.#tell(`${notifications(run.total)} sent again, then it stopped: ${this.#page.explain(error)}`, true);
      if (error.kind !== "refused" || error.status === 403) throw error;
    }
  }

  /** Stores a run; without one, removes that of the status. */
  #keep(status, run) {
    const runs = JSON.stringify({ ...this.#runs, [status]: run });
    if (runs === "{}") localStorage.removeItem(this.#name);
    else localStorage.setItem(this.#name, runs);
  }

  #tell(text, isOver = false) {
    this.element.textContent = text;
    if (isOver && !this.element.isConnected) this.#page.tell(text);
  }
}

function refusedWords({ refused }) {
  return refused ? ` ${notifications(refused)} cannot be sent: the catalog no longer accepts them.` : "";
}

/** Returns a key that no other call has; also works on pages without TLS. */
function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const notifications = (count) => `${number(count)} ${count === 1 ? "notification" : "notifications"}`;
const word = (status) => readable(status).toLowerCase();
