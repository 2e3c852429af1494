// Carillon · index.d.ts
// SPDX-License-Identifier: Apache-2.0

import type { Texts } from "./texts.js";

export type { Texts };

/** The version of the package and of the server that it comes with. */
export const version: string;

/** The words of the inbox in English. */
export const en: Texts;

// MARK: Notifications

export type Severity = "alert" | "warning" | "info";
export type Delivery = "push" | "in_app";

/** A button of a notification. For a click on a push, only `id` is known. */
export interface Action {
  readonly id: string;
  readonly title?: string;
  /** The link that it opens; by default the notification's own. */
  readonly url?: string;
  readonly foreground?: boolean;
  readonly destructive?: boolean;
  readonly authentication?: boolean;
}

/** A notification of the user. Times are RFC 3339. */
export interface Notification {
  readonly id: string;
  readonly type: string;
  readonly severity: Severity;
  readonly delivery: Delivery;
  readonly title: string;
  readonly body: string;
  /** The job's own data; its `actions` are the buttons. */
  readonly data: { readonly actions?: readonly Action[]; readonly [name: string]: unknown };
  readonly category: string | null;
  /** The organisation of the job. */
  readonly org: string | null;
  readonly entity_type: string | null;
  readonly entity_id: string | null;
  readonly url: string | null;
  readonly image: string | null;
  readonly collapse_key: string | null;
  /** The inbox version of its last change. */
  readonly version: number;
  readonly created_at: string;
  readonly read_at: string | null;
  readonly expires_at: string | null;
  /** The reason why the delivery was reduced, such as `capped_by_type`. */
  readonly held_back: string | null;
  /** True if the app should not ring, such as in quiet hours. */
  readonly silent?: true;
  /** True if the user marked it unread or brought it back, so it is not new. */
  readonly again?: true;
}

// MARK: The element

/**
 * Returns a token of the user, or null if none is signed in.
 *
 * @param isRefused whether a fresh token is needed, because the last was refused or expires soon.
 */
export type TokenProvider = (isRefused: boolean) => string | null | undefined | Promise<string | null | undefined>;

/**
 * Draws a notification, or returns null for the usual entry.
 *
 * The result becomes part of the entry's link, so it must not hold links or buttons.
 */
export type RenderItem = (
  notification: Notification,
  context: { readonly language: string; readonly texts: Texts },
) => Node | null | undefined;

/** The attributes of the element. */
export interface CarillonAttributes {
  /** A JWT of the user. */
  token?: string;
  /** The gateway, such as `https://notify.example.com`. */
  url?: string;
  /** `page` for the panel without a bell. */
  view?: "page";
  /** Shows only notifications of this category. */
  category?: string;
  /** Shows only notifications of this organisation. */
  org?: string;
  /** `en`, `de`, `fr`, `es`, `pt`, `ja` or `ar`; by default the page's language. */
  lang?: string;
  /** The theme; the system's by default. */
  theme?: "light" | "dark";
  /** A service worker on the page's own origin, for Web Push. */
  worker?: string;
}

/** The events of the element. They bubble and cross shadow roots. */
export interface CarillonEvents {
  /** The unread count is known, or has changed. */
  "carillon-unread": CustomEvent<{ readonly unread: number }>;
  /** A notification has just arrived, or came during a lost connection. */
  "carillon-arrival": CustomEvent<Notification>;
  /** The user clicked a notification. `preventDefault()` keeps the link from opening. */
  "carillon-open": CustomEvent<{ readonly notification: Notification; readonly url: string | null }>;
  /**
   * The user pressed a button. `preventDefault()` means that the page handles it. After a click on
   * a push, a notification that could not be read has only its `id`.
   */
  "carillon-action": CustomEvent<{
    readonly notification: Pick<Notification, "id"> & Partial<Notification>;
    readonly action: Action;
  }>;
  /** An app sent an ephemeral event. */
  "carillon-event": CustomEvent<{ readonly name: string; readonly args: readonly unknown[] }>;
  /** No valid token is left. */
  "carillon-signed-out": CustomEvent<null>;
}

/** `<carillon-inbox>`: a bell with a badge and a panel; with `view="page"`, only the panel. */
export class CarillonInbox extends HTMLElement {
  static observedAttributes: string[];

  /** The attribute of this name. */
  get token(): string | null;
  set token(token: string | null | undefined);

  /** Gives tokens instead of the attribute. A new function restarts the inbox. */
  tokenProvider: TokenProvider | null;

  /** Words that replace those of the element. */
  get texts(): Partial<Texts>;
  set texts(texts: Partial<Texts> | null | undefined);

  renderItem: RenderItem | null;

  /** The unread count of the inbox, or of `category` and `org`; null until it is known. */
  get unread(): number | null;

  /** The URL of the gateway that the element uses. */
  get gateway(): string;

  /** Opens or closes the panel; without an argument, toggles it. */
  toggle(isOpen?: boolean): void;

  /**
   * Ends the pushes to this browser. At a logout, call it while the token is still valid, on the
   * element that has the `worker`; without one, it does nothing. Rejects if the browser may still
   * get pushes.
   */
  switchPushOff(): Promise<void>;
}

declare global {
  interface HTMLElementTagNameMap {
    "carillon-inbox": CarillonInbox;
  }
  interface HTMLElementEventMap extends CarillonEvents {}
  interface DocumentEventMap extends CarillonEvents {}
  interface WindowEventMap extends CarillonEvents {}
}
