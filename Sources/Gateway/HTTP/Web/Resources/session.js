// Carillon · session.js
// SPDX-License-Identifier: Apache-2.0

import { h } from "./dom.js";
import { Client } from "./inbox-client.js";
import { en } from "./texts.js";

/** The sign-in state of a gateway page: a token, kept for this tab or for this browser. */
export class Session {
  #name;
  /** A token from a link. Anyone can send a link, so the reader must agree first. */
  offered = null;

  /** @param {string} name separates the sessions of different pages. */
  constructor(name) {
    this.#name = `carillon.${name}.token`;
    this.#takeFromAddress();
  }

  /**
   * Takes a token from the fragment, which browsers send to no server, and removes it from the URL.
   */
  #takeFromAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const token = given.get("token");
    if (!token) return;
    given.delete("token");
    const rest = given.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
    this.offered = token;
  }

  get token() { return sessionStorage.getItem(this.#name) ?? localStorage.getItem(this.#name); }

  keep(token, isRemembered) {
    this.forget();
    (isRemembered ? localStorage : sessionStorage).setItem(this.#name, token);
  }

  forget() {
    sessionStorage.removeItem(this.#name);
    localStorage.removeItem(this.#name);
  }

  /** Asks whether to sign in with the token of a link; in English unless given other texts. */
  async question(title, decided, texts = en) {
    const [name, user] = await Promise.all([this.offered, this.token].map(userOf));
    const answer = (isTaken) => {
      if (isTaken) this.keep(this.offered, false);
      this.offered = null;
      decided();
    };
    const yes = h("button", { type: "button", class: "primary", id: "take" }, texts.signIn);
    const no = h("button", { type: "button", class: "plain", id: "decline" }, texts.declineLink);
    yes.addEventListener("click", () => answer(true));
    no.addEventListener("click", () => answer(false));
    return h("div", { class: "sign-in" }, h("h1", null, title), h("p", null, texts.linkSignsIn(name ?? "?", user)), yes, no);
  }

  /** A form that asks for a token; in English unless given other texts. */
  form({ title, text, hint, refused, texts = en }, signedIn) {
    const field = h("textarea", {
      id: "token", name: "token", rows: 3, required: true, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
      "aria-describedby": "token-hint token-fault",
    });
    const remember = h("input", { type: "checkbox", name: "remember" });
    const fault = h("p", { class: "fault", id: "token-fault", role: "alert" }, refused ?? "");
    const form = h("form", { class: "sign-in", novalidate: true }, h("h1", null, title), h("p", null, text),
      h("label", { for: "token" }, texts.token), field, h("p", { class: "hint", id: "token-hint" }, hint), fault,
      h("label", { class: "remember" }, remember, " ", texts.stay),
      h("button", { type: "submit", class: "primary" }, texts.signIn));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const token = field.value.trim();
      if (!/^[\w-]+\.[\w-]+\.[\w-]+$/.test(token)) {
        fault.textContent = texts.notAToken;
        field.focus();
        return;
      }
      this.keep(token, remember.checked);
      signedIn();
    });
    return form;
  }
}

/** Returns the user that a token names; null without a valid token, or without an answer. */
export async function userOf(token) {
  return new Client(location.origin, (isRefused) => (isRefused ? null : token)).user().catch(() => null);
}
