// Carillon · client.d.ts
// SPDX-License-Identifier: Apache-2.0

import type { Notification, TokenProvider } from "./index.js";

/** A failed call. */
export class CallError extends Error {
  readonly kind: "signedOut" | "unreachable" | "refused";
  /** The HTTP status if the call was refused, else 0. */
  readonly status: number;
  /** The wait in seconds that the gateway asked for, or null. */
  readonly retryAfter: number | null;
  readonly faults: readonly { readonly field: string; readonly reason: string }[];
}

/** Calls a gateway as one user. */
export interface Client {
  /** The gateway, without a slash at the end. */
  readonly url: string;
  /**
   * Calls the REST API, and returns the JSON of the answer, or null if it has no body. Rejects with
   * a `CallError`. A change that was sent goes on if the page is left.
   */
  call<Answer = unknown>(method: string, path: string, body?: unknown): Promise<Answer>;
}

/** Notifications of a category, of an organisation, of both, or all. */
export interface Feed {
  /** The empty name selects notifications without a category. */
  readonly category?: string | null;
  readonly org?: string | null;
}

/** Chooses a list: a feed, or only its unread notifications. */
export interface Filter extends Feed {
  readonly isUnread?: boolean;
}

/** The state of the connection. `displaced` means that the user has too many newer connections. */
export type ConnectionState = "online" | "connecting" | "offline" | "signedOut" | "displaced";

export interface InboxEvents {
  change: CustomEvent<null>;
  /** The user's first page has loaded. */
  loaded: CustomEvent<null>;
  /** The token names another user: the inbox is empty until that user's first page has loaded. */
  user: CustomEvent<null>;
  /** A notification has just arrived, or came during a lost connection. */
  arrival: CustomEvent<Notification>;
  state: CustomEvent<ConnectionState>;
  /** An app sent an ephemeral event. */
  event: CustomEvent<{ readonly name: string; readonly args: readonly unknown[] }>;
  /** The names of types and categories have loaded. */
  words: CustomEvent<null>;
  /**
   * A change could not be saved and was undone, a button could not be reported, or older
   * notifications could not be loaded.
   */
  fault: CustomEvent<"notSaved" | "refused" | "failedTitle">;
  signedOut: CustomEvent<null>;
}

/** This page's copy of an inbox. */
export interface InboxStore {
  readonly isLoaded: boolean;
  readonly version: number | null;
  readonly unread: number;
  readonly total: number;
  find(id: string): Notification | undefined;
  /** Returns the loaded notifications of a list, newest first. */
  list(filter?: Filter): Notification[];
  /** Returns the cursor of the next page, or null at the end. */
  cursor(filter?: Filter): string | null;
}

/** Names of types and categories, from the catalog. */
export interface Words {
  readonly categories: string[];
  typeName(type: string): string;
  categoryName(category: string): string;
}

/**
 * A user's inbox in one tab: its notifications, the calls that change them, the socket, and the
 * other tabs. Changes show at once, and are undone if the gateway refuses them.
 */
export class Inbox extends EventTarget {
  /**
   * @param url the gateway; in a page it may be relative.
   * @param getToken called again when the last token was refused or expires soon.
   * @param locale the language of the names of types and categories.
   */
  constructor(url: string | URL, getToken: TokenProvider, locale: string);

  readonly client: Client;
  readonly store: InboxStore;
  readonly words: Words;
  readonly state: ConnectionState;
  readonly isLoading: boolean;
  /** The error of the last load of the first page. */
  readonly loadError: CallError | null;
  /** Whether the last load of older notifications failed; a new connection resets it. */
  readonly hasMoreFailed: boolean;
  /** The archive as far as it is loaded; null before `loadArchive()`. */
  readonly archive: { readonly items: readonly Notification[]; readonly cursor: string | null } | null;
  /** The URL of the service worker; without it, the worker that covers the page. */
  worker?: string;

  /** Loads the inbox and connects. Returns false without a token, or if the inbox is closed. */
  open(): Promise<boolean>;
  /** Ends the inbox; make a new one for another user. */
  close(): void;
  /** Disconnects until `resume()`, such as while an app is in the background. */
  pause(): void;
  /** Reconnects after `pause()` and catches up. Otherwise does nothing. */
  resume(): void;
  /** Reconnects and reloads at once, when the user asks for it. */
  retry(): void;
  load(): Promise<void>;
  /** Loads the next page of a list; for the empty category, the next page of all notifications. */
  loadMore(filter: Filter): Promise<void>;
  /** Loads the archive's first page, or the next. */
  loadArchive(isFirst: boolean): Promise<void>;
  /**
   * Counts unread notifications by category again for `unread()`, of one organisation or of all.
   * Fires `change` when the counts are known.
   */
  countCategories(org?: string | null): void;
  /** Returns the unread count of a feed; null before `countCategories()`. */
  unread(feed: Feed): number | null;

  /** Returns a notification, from the gateway if it is not loaded; null if there is none. */
  find(id: string): Promise<Notification | null>;
  /** Returns undefined if it is already read or archived, else whether the gateway saved it. */
  markRead(id: string): Promise<boolean> | undefined;
  markAllRead(): Promise<boolean>;
  markUnread(id: string): Promise<boolean>;
  remove(id: string): Promise<boolean>;
  /** Deletes all read notifications. */
  removeRead(): Promise<boolean>;
  moveToArchive(id: string): Promise<boolean>;
  snooze(id: string, until: Date): Promise<boolean>;
  /** Brings back a deleted, archived or snoozed notification. */
  restore(id: string): Promise<boolean>;
  /** Reports that the user opened a notification, and marks it read. */
  opened(id: string): Promise<boolean> | undefined;
  /** Reports that the user pressed a button of a notification, and marks it read. */
  acted(id: string, action: string): Promise<boolean> | undefined;
  /**
   * Asks the gateway's service worker for the clicks on pushes that it has stored, if they can be
   * reported now. Each comes as a message with the `kind` `carillon-clicked`, an `id` and, for a
   * button, an `action`.
   */
  takeClicks(): void;
  /**
   * Reports a click of such a message, and marks its notification read. Returns whether the gateway
   * accepted the report. If a later report may succeed (no answer, 401, 429 or 5xx), the service
   * worker stores the click again.
   */
  reportClick(click: { readonly id: string; readonly action?: string }): Promise<boolean>;

  addEventListener<Name extends keyof InboxEvents>(
    type: Name, listener: (event: InboxEvents[Name]) => void, options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<Name extends keyof InboxEvents>(
    type: Name, listener: (event: InboxEvents[Name]) => void, options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    type: string, listener: EventListenerOrEventListenerObject | null, options?: boolean | EventListenerOptions,
  ): void;
}

/**
 * `unavailable` means that the gateway has no key for Web Push, and `denied` that the user has
 * forbidden notifications.
 */
export type PushState = "unsupported" | "unavailable" | "denied" | "on" | "off";

/** Web Push in this browser. */
export class Push {
  /** @param worker the URL of the service worker, on the page's own origin. */
  constructor(client: Client, worker: string);

  readonly isSupported: boolean;
  state(): Promise<PushState>;
  /**
   * Registers the worker, and renews the device if that is due, or ends the pushes of another
   * user. Call it at each start. Resolves to false if the last two failed: call it again when the
   * inbox is online.
   */
  start(): Promise<boolean>;
  /** Calls `start()`, unless that succeeded within a day. Call it whenever the inbox is online. */
  startIfDue(): Promise<void>;
  /** Asks for permission and registers the device; call it when the user presses a button. */
  switchOn(): Promise<PushState>;
  /** Ends the pushes to this browser. At a logout, call it while the token is still valid. */
  switchOff(): Promise<PushState>;
}
