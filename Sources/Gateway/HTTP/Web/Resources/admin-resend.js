// Carillon · admin-resend.js
// SPDX-License-Identifier: Apache-2.0

import { confirm, jobLink, number } from "./admin-parts.js";
import { h, readable, set } from "./dom.js";

const rules = "Preferences, quiet hours and caps of now apply.";

/** A button that sends one notification again, and the answer: a link to the job that does so. */
export class Resend {
  #page;
  #notification;
  /** Sends nothing twice if the answer was lost; after an answer, another click sends again. */
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

/** Sends all notifications of a job with one status again, a thousand a call. */
export class ResendRun {
  #path;
  #org;
  #status;
  /** A repeated call sends nothing twice. */
  #key = randomKey();
  #cursor = null;
  #total = 0;
  #refused = 0;
  isDone = false;

  constructor({ id, org }, status) {
    this.#path = `/v1/admin/jobs/${encodeURIComponent(id)}/resend`;
    this.#org = org;
    this.#status = status;
  }

  /**
   * Asks, then sends; after a failure it goes on where it stopped.
   *
   * @param {(text: string) => void} tell is called with the progress and the outcome.
   */
  async go(page, count, tell) {
    const text = `Everyone with a notification of the status “${readable(this.#status).toLowerCase()}” gets it again, as a new job. ${rules}`;
    const rest = count - this.#total;
    if (!await confirm(`Resend ${notifications(rest)}?`, text, `Resend ${number(rest)}`)) return;
    try {
      do {
        const answer = await page.call("POST", this.#path, {
          status: this.#status, key: this.#key, ...(this.#org ? { org: this.#org } : {}),
          ...(this.#cursor ? { cursor: this.#cursor } : {}),
        });
        this.#total += answer.count;
        this.#refused += answer.refused;
        this.#cursor = answer.next_cursor;
        const refused = this.#refused ? ` ${notifications(this.#refused)} cannot be: the catalog no longer takes them.` : "";
        tell(`${notifications(this.#total)} sent again${this.#cursor ? " so far" : ""}.${refused}`);
      } while (this.#cursor);
      this.isDone = true;
    } catch (error) {
      tell(`${notifications(this.#total)} sent again, then it stopped: ${page.explain(error)}`);
      if (error.kind !== "refused" || error.status === 403) throw error;
    }
  }
}

/** Returns a key that no other call has; also works on pages without TLS. */
function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const notifications = (count) => `${number(count)} ${count === 1 ? "notification" : "notifications"}`;
