// Carillon · inbox.js
// SPDX-License-Identifier: Apache-2.0

import { CallError, Client } from "./inbox-client.js";
import { Connection } from "./inbox-connection.js";
import { InboxStore } from "./inbox-store.js";
import { Words } from "./words.js";

/**
 * The preference of a disabled type, which the answer of the gateway lacks.
 *
 * As the user's own choices for it are not known, an undo clears them.
 */
const unlisted = { channels: ["in_app", "push", "email"], own: { in_app: null, push: null, email: null } };

/**
 * A user's inbox in one tab: the store, the calls that change it, the socket, and the other tabs.
 *
 * Fires `change`, `loaded` (the user's first page), `arrival` (a notification), `state` (of the
 * connection), `event` (of an app), `words` (of the catalog), `fault` (the name of a text), `user`
 * (another user's token replaced the last) and `signedOut`.
 */
export class Inbox extends EventTarget {
  static pageSize = 30;

  store = new InboxStore();
  words = new Words();
  /** The archive, as far as it was loaded; null before. */
  archive = null;
  /** The error of the last load of the first page, or null. */
  loadError = null;
  /** Whether the last load of older notifications failed; lists ask again once it is false. */
  hasMoreFailed = false;
  isLoading = false;

  #client;
  #connection;
  #tabs = null;
  /** The user of the list; until a ticket names the user, the token of the first load. */
  #owner = null;
  /** Incremented when the user changes: answers to earlier calls are the previous user's. */
  #generation = 0;
  #loading = null;
  /** The timer of the next try after a failed load, and the number of failures in a row. */
  #reloading = null;
  #failures = 0;
  /** The last message of the socket that has a version. */
  #last = null;
  /** How often the first page was loaded. */
  #loads = 0;
  /** Unread notifications by category, of each organisation with a feed and, for null, of all. */
  #counts = new Map();
  /** Counts by the same keys: their timers, the newest queries, and the inbox's versions. */
  #counting = new Map();
  #queries = new Map();
  #counted = new Map();
  #locale;
  #isClosed = false;
  #isPaused = false;
  #hasWords = false;
  /** The URL of the service worker; without it, the worker that covers the page. */
  worker;
  /** The panel that acts for all that share this inbox. */
  speaker = null;
  /** The last notification that screen readers were told of. */
  announced = null;
  isLoadingArchive = false;

  /** @param {string} locale the language of the catalog's words. */
  constructor(url, getToken, locale) {
    super();
    this.#client = new Client(url, getToken);
    this.#locale = locale;
    this.#connection = new Connection(this.#client, (ticket) => this.#resume(ticket));
    this.store.addEventListener("change", () => this.#fire("change"));
    this.store.addEventListener("arrival", ({ detail }) => this.#fire("arrival", detail));
    this.#connection.addEventListener("frame", ({ detail }) => this.#take(detail));
    this.#connection.addEventListener("state", ({ detail }) => this.#stateChanged(detail));
  }

  get client() { return this.#client; }
  get state() { return this.#connection.state; }

  /** Loads the inbox and connects. Returns whether it did: not without a token, or once closed. */
  async open() {
    // A page that fails to give a token may give one later: the loads below try again.
    const token = await this.#client.token().catch(() => true);
    if (this.#isClosed) return false;
    if (!token) {
      this.loadError = new CallError("signedOut", "no token");
      this.#fire("change");
      this.#fire("signedOut");
      return false;
    }
    await Promise.all([this.load(), this.#loadWords()]);
    if (this.#isClosed) return false;
    if (!this.#isPaused) this.#connection.open();
    return true;
  }

  /** Disconnects until `resume()`, such as while an app is in the background. */
  pause() {
    this.#isPaused = true;
    this.#connection.close();
  }

  /** Reconnects, and receives what it missed. Without `pause()`, does nothing. */
  resume() {
    if (this.#isPaused && !this.#isClosed) this.#connection.open();
    this.#isPaused = false;
  }

  close() {
    this.#isClosed = true;
    for (const timer of [this.#reloading, ...this.#counting.values()]) clearTimeout(timer);
    this.#connection.close();
    this.#tabs?.close();
    this.#tabs = null;
  }

  /** Reconnects and reloads at once, when the user asks for it. */
  retry() {
    this.#connection.retry();
    this.hasMoreFailed = false;
    if (this.store.mustReload) this.load();
    else this.#fire("change");
  }

  #fire(name, detail) { this.dispatchEvent(new CustomEvent(name, { detail })); }

  // Data from the gateway.

  /** Loads the first page. Concurrent calls share one request. */
  load() {
    this.#loading ??= this.#load().finally(() => { this.#loading = null; });
    return this.#loading;
  }

  /** Loads the first page, and tries again until that succeeds. */
  #reload() {
    this.store.mustReload = true;
    this.load();
  }

  async #load() {
    clearTimeout(this.#reloading);
    this.isLoading = true;
    this.#fire("change");
    try {
      const page = await this.#page(`limit=${Inbox.pageSize}`);
      this.#owner ??= await this.#client.token();
      this.loadError = null;
      this.#failures = 0;
      const { isLoaded } = this.store;
      this.store.replace(page);
      // Pushes on the screen may have been read elsewhere while no page was open.
      this.#tellWorker({ kind: "close", ids: readIDs(page.notifications), unread: page.unread });
      this.#loads += 1;
      if (!isLoaded) this.#fire("loaded");
    } catch (error) {
      this.loadError = error;
      if (error.kind === "signedOut") {
        this.#fire("signedOut");
      } else if (this.store.mustReload) {
        const wait = (error.retryAfter ?? 0) * 1000 + Connection.backoff(this.#failures++);
        // While it is offline, the next connection loads the page.
        this.#reloading = setTimeout(() => this.state === "online" && this.load(), wait);
      }
    } finally {
      this.isLoading = false;
      this.#fire("change");
    }
  }

  /** Reads a page, again if the user has changed or a message of the socket has overtaken it. */
  async #page(query) {
    let generation, last, page;
    do {
      generation = this.#generation;
      last = this.#last;
      page = await this.#client.call("GET", `/v1/notifications?${query}`);
    } while (generation !== this.#generation || (this.#last !== last && page.version < this.#last.version));
    return page;
  }

  async #loadWords() {
    try {
      this.words = new Words(await this.#client.call("GET", `/v1/types?${new URLSearchParams({ locale: this.#locale })}`));
      this.#hasWords = true;
      this.#fire("words");
    } catch (error) {
      // Until the next connection loads them, names are derived from types.
      warn(error);
    }
  }

  /** Returns the unread count of a feed; null before it was counted. */
  unread({ category = null, org = null }) {
    if (category === null && !org) return this.store.isLoaded ? this.store.unread : null;
    const counts = this.#counts.get(org);
    if (!counts) return null;
    return category === null ? Object.values(counts).reduce((sum, one) => sum + one, 0) : counts[category] ?? 0;
  }

  /** Counts by category again once the inbox has another version, or if the last count failed. */
  updateCounts(org) {
    const { version } = this.store;
    if (version === null || version === this.#counted.get(org)) return;
    this.#counted.set(org, version);
    this.countCategories(org);
  }

  /**
   * Counts the unread of each category again, of one organisation or, for null, of all; soon, and
   * once for a burst of changes.
   */
  countCategories(org = null) {
    if (this.#counting.has(org)) return;
    this.#counting.set(org, setTimeout(async () => {
      this.#counting.delete(org);
      const query = new URLSearchParams({ by_category: true, ...(org ? { org } : {}) });
      this.#queries.set(org, query);
      try {
        const answer = await this.#client.call("GET", `/v1/notifications/unread-count?${query}`);
        if (query !== this.#queries.get(org)) return;
        this.#counts.set(org, answer.categories);
        this.#fire("change");
      } catch {
        // The next change counts again.
        this.#counted.delete(org);
      }
    }, 400));
  }

  /** Loads the next page of the archive. */
  async loadArchive(isFirst) {
    const cursor = isFirst ? null : this.archive?.cursor;
    if (this.isLoadingArchive || (!isFirst && !cursor)) return;
    this.isLoadingArchive = true;
    this.#fire("change");
    const query = new URLSearchParams({ limit: Inbox.pageSize, ...(cursor ? { cursor } : {}) });
    const generation = this.#generation;
    try {
      const page = await this.#client.call("GET", `/v1/notifications/archived?${query}`);
      if (generation === this.#generation) {
        // A deletion that fails puts its entry back into the same archive.
        if (isFirst) this.archive = { items: [] };
        Object.assign(this.archive, { items: [...this.archive.items, ...page.notifications], cursor: page.next_cursor });
      }
      this.hasMoreFailed = false;
    } catch (error) {
      this.hasMoreFailed = true;
      this.#complain(error, "failedTitle");
    } finally {
      this.isLoadingArchive = false;
      this.#fire("change");
    }
    if (generation !== this.#generation) await this.loadArchive(true);
  }

  async loadMore(wanted) {
    // The gateway has no list of those without a category; the list of everything has them.
    const filter = wanted.category === "" || wanted.org === "" ? {} : wanted;
    const cursor = this.store.cursor(filter);
    if (!cursor || this.isLoading) return;
    this.isLoading = this.store.isLoading = true;
    this.#fire("change");
    const { isUnread, category, org } = filter;
    const query = new URLSearchParams({
      limit: Inbox.pageSize, cursor, ...(isUnread && { unread_only: true }), ...(category && { category }), ...(org && { org }),
    });
    try {
      const page = await this.#page(query);
      // Drop the page if the list that it continues was replaced meanwhile.
      if (this.store.cursor(filter) === cursor) this.store.append(page, filter);
      this.hasMoreFailed = false;
    } catch (error) {
      this.hasMoreFailed = true;
      this.#complain(error, "failedTitle");
    } finally {
      this.isLoading = this.store.isLoading = false;
      this.#fire("change");
    }
  }

  #take(frame) {
    if ("version" in frame) this.#last = frame;
    if (frame.type === "event") this.#fire("event", frame.event);
    if (this.store.apply(frame)) this.load();
    if (frame.type === "read") this.#closeShown(frame.change.all ? null : frame.change.ids);
    if (frame.type === "deleted" && frame.change.ids) this.#closeShown(frame.change.ids);
    if (frame.type === "sync") this.#closeShown([...frame.deleted, ...readIDs(frame.notifications)]);
  }

  #stateChanged(state) {
    if (state === "signedOut") this.#fire("signedOut");
    if (state === "online") {
      if (this.store.mustReload) this.load();
      if (!this.#hasWords) this.#loadWords();
      // Lists request a missing page again.
      this.hasMoreFailed = false;
      this.#fire("change");
    }
    this.#fire("state", state);
  }

  /** Returns the version to resume from; null if the list is incomplete or another user's. */
  #resume({ token, user }) {
    if (user !== this.#owner) {
      if (token !== this.#owner) this.#forget();
      this.#owner = user;
      this.#joinTabs();
    }
    return this.store.mustReload ? null : this.store.version;
  }

  /** Forgets the previous user's data. */
  #forget() {
    this.#generation += 1;
    for (const counts of [this.#counts, this.#queries, this.#counted]) counts.clear();
    this.store.replace({ notifications: [], version: null, unread: 0, total: 0 });
    this.store.mustReload = true;
    if (this.archive) {
      this.archive = null;
      this.loadArchive(true);
    }
    this.#fire("user");
  }

  /** Returns a notification, from the gateway if it is not loaded; null if there is none. */
  async find(id) {
    return this.store.find(id) ?? this.#client.call("GET", `/v1/notifications/${id}`).catch(() => null);
  }

  // The user's actions: applied at once, sent to the other tabs, and undone if the gateway refuses.

  markRead(id) {
    const item = this.store.find(id);
    // The archive may still list one that has moved back to the inbox elsewhere.
    if (item ? item.read_at : this.archive?.items.some((one) => one.id === id)) return;
    return this.#change({ kind: "read", ids: [id] }, "POST", `/v1/notifications/${id}/read`);
  }

  markAllRead() {
    return this.#change({ kind: "read", ids: null }, "POST", "/v1/notifications/read", { all: true });
  }

  markUnread(id) {
    return this.#change({ kind: "unread", ids: [id] }, "POST", `/v1/notifications/${id}/unread`);
  }

  remove(id) {
    const putBack = this.#dropArchived(id);
    return this.#change({ kind: "deleted", ids: [id] }, "DELETE", `/v1/notifications/${id}`, undefined, putBack);
  }

  removeRead() {
    return this.#change({ kind: "deleted", ids: null }, "DELETE", "/v1/notifications");
  }

  moveToArchive(id) {
    return this.#change({ kind: "deleted", ids: [id] }, "POST", `/v1/notifications/${id}/archive`);
  }

  /** @param {Date} until when it comes back. */
  snooze(id, until) {
    return this.#change({ kind: "deleted", ids: [id] }, "POST", `/v1/notifications/${id}/snooze`, { until: until.toISOString() });
  }

  /**
   * Brings back a deleted, archived or snoozed notification, which then arrives over the socket.
   * Returns whether that worked.
   */
  async restore(id) {
    try {
      await this.#client.call("POST", `/v1/notifications/${id}/restore`);
      this.#dropArchived(id);
      return true;
    } catch (error) {
      this.#complain(error);
      return false;
    }
  }

  /** Removes an entry of the archive. Returns a function that puts it back. */
  #dropArchived(id) {
    const { archive } = this;
    const index = archive?.items.findIndex((item) => item.id === id) ?? -1;
    if (index < 0) return () => {};
    const item = archive.items[index];
    archive.items = archive.items.toSpliced(index, 1);
    this.#fire("change");
    return () => {
      archive.items = archive.items.toSpliced(index, 0, item);
      this.#fire("change");
    };
  }

  /** Refuses all channels of a type. Returns the choices before, or null if it is not saved. */
  async mute(type) {
    try {
      const { types } = await this.#client.call("GET", "/v1/preferences");
      const { channels, own } = types.find((one) => one.type === type) ?? unlisted;
      const wish = (isMuted) => Object.fromEntries(channels.map((name) => [name, isMuted ? false : own[name]]));
      await this.#client.call("PUT", "/v1/preferences", { types: [{ type, ...wish(true) }] });
      return { type, ...wish(false) };
    } catch (error) {
      this.#complain(error);
      return null;
    }
  }

  /** Saves the preference of a type. Returns whether it did. */
  async prefer(preference) {
    try {
      await this.#client.call("PUT", "/v1/preferences", { types: [preference] });
      return true;
    } catch (error) {
      this.#complain(error);
      return false;
    }
  }

  /** Reports that the user opened a notification. */
  opened(id) { return this.#clicked({ id }); }

  /** Reports that the user pressed a button of a notification. */
  acted(id, action) { return this.#clicked({ id, action }); }

  #clicked(click) {
    this.#report(click).catch(click.action ? (error) => this.#complain(error) : warn);
    return this.markRead(click.id);
  }

  #report({ id, action }) {
    const [name, body] = action ? ["actions", { action: String(action) }] : ["opened"];
    return this.#client.call("POST", `/v1/notifications/${id}/${name}`, body);
  }

  /** @param {() => void} putBack undoes the part of the change that is not in the store. */
  async #change(change, method, path, body, putBack) {
    const generation = this.#generation;
    const [last, loads] = [this.#last, this.#loads];
    const undo = this.#perform(change);
    this.#tabs?.postMessage(change);
    if (change.kind === "read") this.#closeShown(change.ids);
    try {
      const answer = await this.#client.call(method, path, body);
      if (answer && generation === this.#generation) this.store.settle(answer);
      return true;
    } catch (error) {
      // Another tab or device deleted it first, or the list is another user's now.
      if (error.status === 404 || generation !== this.#generation) return false;
      undo();
      putBack?.();
      this.#tabs?.postMessage({ kind: "reload" });
      this.#complain(error);
      // The undo may overwrite a newer message or page, or the gateway may have made the change.
      const isOvertaken = last !== this.#last || loads !== this.#loads;
      const isUnsure = isOvertaken || error.kind === "unreachable" || error.status >= 500;
      if (isUnsure && error.kind !== "signedOut") this.#reload();
      return false;
    }
  }

  #perform({ kind, ids }) {
    if (kind === "read") return this.store.markRead(ids);
    return kind === "unread" ? this.store.markUnread(ids) : this.store.markDeleted(ids);
  }

  #complain(error, text = error.kind === "unreachable" ? "notSaved" : "refused") {
    if (error.kind === "signedOut") this.#fire("signedOut");
    else this.#fire("fault", text);
  }

  // Other tabs, and the service worker's notifications.

  #joinTabs() {
    this.#tabs?.close();
    // React Native has no tabs.
    if (!globalThis.BroadcastChannel) return;
    this.#tabs = new BroadcastChannel(`carillon ${this.#client.url} ${this.#owner}`);
    this.#tabs.onmessage = ({ data }) => {
      if (data.kind === "reload") this.#reload();
      else if (this.store.isLoaded) this.#perform(data);
    };
  }

  /**
   * Closes system notifications of these ids, or all of them if `ids` is null, and updates the
   * badge.
   */
  #closeShown(ids) { if (ids?.length !== 0) this.#tellWorker({ kind: "close", ids, unread: this.store.unread }); }

  /** Asks the service worker for the clicks that it keeps, if they can be reported now. */
  takeClicks() {
    const canReport = this.store.isLoaded && this.state !== "signedOut" && navigator.onLine;
    if (canReport) this.#tellWorker({ kind: "carillon-take-clicks" });
  }

  /**
   * Reports a click that the service worker has handed over, and marks its notification as read.
   *
   * Returns whether the gateway accepted it. If a later report may succeed, the click goes back to
   * the worker.
   */
  async reportClick(click) {
    try {
      await this.#report(click);
      this.markRead(click.id);
      return true;
    } catch (error) {
      warn(error);
      const canRetry = error.kind !== "refused" || [401, 429].includes(error.status) || error.status >= 500;
      if (canRetry) this.#tellWorker({ ...click, kind: "carillon-clicked" });
      return false;
    }
  }

  async #tellWorker(message) {
    const registration = await globalThis.navigator?.serviceWorker?.getRegistration(this.worker).catch(() => null);
    registration?.active?.postMessage(message);
  }
}

function readIDs(items) { return items.filter((item) => item.read_at).map((item) => item.id); }

function warn(error) { console.warn("carillon:", error.message); }

/** The inboxes that elements of this page share, so that a bell and its feeds use one socket. */
const shared = [];

/**
 * Returns the inbox for a gateway and a source of tokens; elements with the same ones share it.
 *
 * @param source the token, or the function that returns one.
 * @returns the inbox, and `leave`, which closes it once its last element has left.
 */
export function shareInbox(url, source, getToken, locale) {
  let entry = shared.find((one) => one.url === url && one.source === source && one.locale === locale && source);
  if (!entry) {
    entry = { url, source, locale, users: 0, inbox: new Inbox(url, getToken, locale), opening: null };
    shared.push(entry);
  }
  entry.users += 1;
  const leave = () => {
    entry.users -= 1;
    if (entry.users > 0) return;
    shared.splice(shared.indexOf(entry), 1);
    entry.inbox.close();
  };
  const open = () => {
    // Another element may have kept an inbox whose user has signed in again.
    if (entry.inbox.state === "signedOut") entry.inbox.retry();
    // After a failure, the next element that starts tries again.
    return (entry.opening ??= entry.inbox.open().then((isOpen) => { if (!isOpen) entry.opening = null; }));
  };
  return { inbox: entry.inbox, open, leave };
}
