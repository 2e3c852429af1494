// Carillon · inbox-store.js
// SPDX-License-Identifier: Apache-2.0

/**
 * A page's copy of an inbox. Pure: no network, no document.
 *
 * Fires `change` after every change, and `arrival` with each new notification.
 */
export class InboxStore extends EventTarget {
  /** The store has every change up to this inbox version; null before the first page. */
  version = null;
  /** Whether changes may be missing, so that the first page must be loaded. */
  mustReload = true;
  unread = 0;
  total = 0;
  /**
   * Whether an older page is loading. It continues a list, so the oldest entries must stay until
   * then.
   */
  isLoading = false;

  #items = new Map();
  /** The limit of notifications; it grows with the pages that the user loads. */
  #most = 1_000;
  /** For each list, the oldest id loaded without gaps; "" if everything is loaded. */
  #floors = new Map();

  get isLoaded() { return this.version !== null; }

  find(id) { return this.#items.get(id); }

  /** Returns the notifications of a list, newest first. */
  list(filter = {}) {
    const floor = this.#floor(filter) ?? "";
    return [...this.#items.values()]
      .filter((item) => item.id >= floor && matches(filter, item))
      .sort((one, other) => (one.id < other.id ? 1 : -1));
  }

  /** Returns the cursor of the next page of a list, or null at its end. */
  cursor(filter = {}) { return this.#floor(filter) || null; }

  /** A list is complete down to where it was loaded itself, or else the list of everything. */
  #floor(filter) { return this.#floors.get(key(filter)) ?? this.#floors.get(key({})); }

  /** Replaces everything with the first page. */
  replace(page) {
    this.#items.clear();
    this.#floors = new Map([[key({}), page.next_cursor ?? ""]]);
    for (const item of page.notifications) this.#items.set(item.id, item);
    this.version = page.version;
    this.mustReload = false;
    this.#count(page);
    this.#changed();
  }

  /** Adds an older page of a list. */
  append(page, filter) {
    for (const item of page.notifications) if (!this.#items.has(item.id)) this.#items.set(item.id, item);
    this.#floors.set(key(filter), page.next_cursor ?? "");
    this.#most = Math.max(this.#most, this.#items.size);
    this.#changed();
  }

  /** Applies a message of the socket. Returns true if the first page must be loaded again. */
  apply(frame) {
    switch (frame.type) {
      case "sync": return this.#sync(frame);
      case "notification": {
        const isNew = !this.#items.has(frame.notification.id);
        this.#put(frame.notification);
        const { again, id } = frame.notification;
        // One that is sent again is no arrival; if it is older than the loaded part, `total` has
        // it.
        if (isNew && (!again || id >= (this.#floor({}) ?? ""))) this.total += 1;
        this.#advance(frame);
        if (isNew && !again) this.#arrive(frame.notification);
        return false;
      }
      case "read":
        this.#read(frame.change.ids ?? this.#upTo(frame.change.up_to_version), frame.change.at);
        this.#advance(frame);
        return false;
      case "deleted":
        this.total -= this.#remove(frame.change.ids ?? this.#upTo(frame.change.up_to_version, (item) => item.read_at)).length;
        this.#advance(frame);
        return false;
      // An `unread` may be older than the last frame; each change brings its own count.
      default: return false;
    }
  }

  #sync(frame) {
    this.mustReload ||= frame.reset;
    if (this.mustReload) return true;
    for (const id of frame.deleted) this.#items.delete(id);
    const floor = this.#floor({}) ?? "";
    const isNew = (item) => item.id >= floor && item.version > this.version && !this.#items.has(item.id);
    const arrived = frame.notifications.filter((item) => isNew(item) && !item.read_at)
      .sort((one, other) => one.version - other.version);
    for (const item of frame.notifications) this.#put(item);
    this.version = Math.max(this.version, frame.version);
    this.#count(frame);
    this.#changed();
    for (const item of arrived) this.#arrive(item);
    return false;
  }

  /** Marks notifications as read, or all if `ids` is null. Returns a function that undoes it. */
  markRead(ids, at = new Date().toISOString()) {
    const before = this.#read(ids, at);
    const fewer = ids === null ? this.unread : Math.min(this.unread, before.length);
    this.unread -= fewer;
    this.#changed();
    return () => {
      // Skip those that were deleted meanwhile.
      for (const item of before) if (this.#items.has(item.id)) this.#put(item);
      this.unread += fewer;
      this.#changed();
    };
  }

  /** Marks notifications as unread again. Returns a function that undoes it. */
  markUnread(ids) {
    const before = ids.map((id) => this.#items.get(id)).filter((item) => item?.read_at);
    for (const item of before) this.#put({ ...item, read_at: null });
    this.unread += before.length;
    this.#changed();
    return () => {
      for (const item of before) if (this.#items.has(item.id)) this.#put(item);
      this.unread = Math.max(0, this.unread - before.length);
      this.#changed();
    };
  }

  /**
   * Deletes notifications, or all read ones if `ids` is null. Returns a function that undoes it.
   */
  markDeleted(ids) {
    const before = this.#remove(ids ?? this.#upTo(Infinity, (item) => item.read_at));
    const fewer = Math.min(this.unread, before.filter((item) => !item.read_at).length);
    this.unread -= fewer;
    this.total -= before.length;
    this.#changed();
    return () => {
      before.forEach((item) => this.#put(item));
      this.unread += fewer;
      this.total += before.length;
      this.#changed();
    };
  }

  /** Sets the unread count from the answer to the user's own call, unless a newer one is known. */
  settle({ unread, version }) {
    if (version < this.version) return;
    this.unread = unread;
    this.#changed();
  }

  #put(item) { this.#items.set(item.id, item); }

  #arrive(item) { this.dispatchEvent(new CustomEvent("arrival", { detail: item })); }

  /** Returns the ids of matching notifications whose version is at most `version`. */
  #upTo(version, isMeant = () => true) {
    return [...this.#items.values()].filter((item) => item.version <= version && isMeant(item)).map((item) => item.id);
  }

  /** Marks as read, and returns the changed notifications in their old state. */
  #read(ids, at) {
    const before = [...(ids ?? this.#items.keys())].map((id) => this.#items.get(id)).filter((item) => item && !item.read_at);
    for (const item of before) this.#put({ ...item, read_at: at });
    return before;
  }

  /** Removes notifications, and returns those that existed. */
  #remove(ids) {
    const before = ids.map((id) => this.#items.get(id)).filter(Boolean);
    for (const item of before) this.#items.delete(item.id);
    return before;
  }

  #advance(frame) {
    // Before the first page, a single change is not enough to resume from.
    if (this.isLoaded) this.version = Math.max(this.version, frame.version);
    this.unread = frame.unread;
    this.#changed();
  }

  #count({ unread, total }) {
    this.unread = unread;
    this.total = total;
  }

  #changed() {
    if (!this.isLoading && this.#items.size > this.#most) {
      // Drops the oldest; the next page of a list brings them again.
      const ids = [...this.#items.keys()].sort();
      const [end] = ids.splice(-this.#most);
      this.#remove(ids);
      for (const [list, floor] of this.#floors) if (floor < end) this.#floors.set(list, end);
    }
    this.dispatchEvent(new Event("change"));
  }
}

/** Whether a list shows a notification. */
function matches({ isUnread, ...feed }, item) { return (!isUnread || !item.read_at) && isOfFeed(feed, item); }

/**
 * Whether a notification belongs to a feed: null or no `category` and `org` stand for all, an empty
 * name for those without one.
 */
export function isOfFeed({ category, org }, item) {
  const isOf = (wanted, own) => (wanted ?? null) === null || wanted === (own ?? "");
  return isOf(category, item.category) && isOf(org, item.org);
}

/**
 * Identifies a list: `isUnread` shows only unread ones, `category` and `org` only those of a
 * category and an organisation.
 */
function key({ isUnread = false, category, org }) { return JSON.stringify([isUnread, category ?? null, org ?? null]); }
