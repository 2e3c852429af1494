// Carillon · session.js
// SPDX-License-Identifier: Apache-2.0

import { h } from "./dom.js";
import { claim } from "./inbox-client.js";
import { language } from "./texts.js";

/** Who is signed in on a page of the gateway's own: a token, for this tab or for this browser. */
export class Session {
  #name;
  /** A token that a link brought: it counts once the reader has agreed, as links come from anyone. */
  offered = null;

  /** @param {string} name tells the pages' sessions apart. */
  constructor(name) {
    this.#name = `carillon.${name}.token`;
    this.#takeFromAddress();
  }

  /** A link may bring a token behind its `#`, which no server is told; it does not stay in the address. */
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

  /** The token's user, as far as it says so. */
  get user() { return this.token ? claim(this.token, "sub") ?? null : null; }

  keep(token, isRemembered) {
    this.forget();
    (isRemembered ? localStorage : sessionStorage).setItem(this.#name, token);
  }

  forget() {
    sessionStorage.removeItem(this.#name);
    localStorage.removeItem(this.#name);
  }

  /** Asks whether to sign in by the token that a link brought, in English unless it is given other texts. */
  question(title, decided, texts = language("en").texts) {
    const name = claim(this.offered, "sub") ?? "?";
    const answer = (isTaken) => {
      if (isTaken) this.keep(this.offered, false);
      this.offered = null;
      decided();
    };
    const yes = h("button", { type: "button", class: "primary", id: "take" }, texts.signIn);
    const no = h("button", { type: "button", id: "decline" }, texts.declineLink);
    yes.addEventListener("click", () => answer(true));
    no.addEventListener("click", () => answer(false));
    return h("div", { class: "sign-in" }, h("h1", null, title), h("p", null, texts.linkSignsIn(name, this.user)), yes, no);
  }

  /** A form that asks for a token, in English unless it is given other texts. */
  form({ title, text, hint, refused, texts = language("en").texts }, signedIn) {
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
