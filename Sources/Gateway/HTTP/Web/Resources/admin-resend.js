// Carillon · admin-resend.js
// SPDX-License-Identifier: Apache-2.0

import { confirm, jobLink, number } from "./admin-parts.js";
import { h, readable, set } from "./dom.js";

const rules = "Preferences, quiet hours and caps of now apply.";

/** A button that sends one notification again, and the answer: a link to the job that does so. */
export class Resend {
  #page;
  #notification;
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
        const query = new URLSearchParams({ user });
        const job = await this.#page.call("POST", `/v1/admin/notifications/${encodeURIComponent(id)}/resend?${query}`);
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
 * Asks, then sends all notifications of a job with one status again, a thousand a call.
 *
 * @param {(text: string) => void} tell is called with the progress and the outcome.
 */
export async function resendAll(page, { id, org }, status, count, tell) {
  const words = notifications(count);
  const text = `Everyone with a notification of the status “${readable(status).toLowerCase()}” gets it again, as a new job. ${rules}`;
  if (!await confirm(`Resend ${words}?`, text, `Resend ${number(count)}`)) return;
  const path = `/v1/admin/jobs/${encodeURIComponent(id)}/resend`;
  let total = 0;
  let cursor = null;
  try {
    do {
      const answer = await page.call("POST", path, { status, ...(org ? { org } : {}), ...(cursor ? { cursor } : {}) });
      total += answer.count;
      cursor = answer.next_cursor;
      tell(`${notifications(total)} sent again${cursor ? " so far" : ""}.`);
    } while (cursor);
  } catch (error) {
    tell(`${notifications(total)} sent again, then it stopped: ${page.explain(error)}`);
    if (error.kind !== "refused" || error.status === 403) throw error;
  }
}

const notifications = (count) => `${number(count)} ${count === 1 ? "notification" : "notifications"}`;
