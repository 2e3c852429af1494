// Carillon · stream_before.mjs
// SPDX-License-Identifier: Apache-2.0
//
// An EventSource for node 20 (HTML standard, section 9.2), whose connection a test can cut, and the
// events of a page.

const document = Object.assign(new EventTarget(), { visibilityState: "visible" });
const addEventListener = document.addEventListener.bind(document);

class EventSource extends EventTarget {
  static CLOSED = 2;
  static opened = [];

  readyState = 0;

  #url;
  #connection = null;
  #id = "";
  #retry = 3_000;

  constructor(url) {
    super();
    this.#url = String(url);
    EventSource.opened.push(this);
    this.#connect();
  }

  close() {
    this.readyState = EventSource.CLOSED;
    this.#connection?.abort();
  }

  /** Cuts the connection, like a network failure. */
  cut() {
    this.#connection.abort();
  }

  async #connect() {
    this.#connection = new AbortController();
    const headers = this.#id ? { "last-event-id": this.#id } : {};
    let isRefused = false;
    try {
      const answer = await fetch(this.#url, { headers, signal: this.#connection.signal });
      isRefused = !answer.ok;
      if (answer.ok) await this.#read(answer.body);
    } catch {
      // A network error; retried below.
    }
    if (this.readyState === EventSource.CLOSED) return;
    this.readyState = isRefused ? EventSource.CLOSED : 0;
    this.dispatchEvent(new Event("error"));
    if (this.readyState !== EventSource.CLOSED) {
      setTimeout(() => this.readyState !== EventSource.CLOSED && this.#connect(), this.#retry);
    }
  }

  async #read(body) {
    this.readyState = 1;
    let text = "";
    for await (const part of body.pipeThrough(new TextDecoderStream())) {
      const events = (text + part).split("\n\n");
      text = events.pop();
      for (const event of events) this.#take(event);
    }
  }

  #take(event) {
    let type = "message";
    const data = [];
    for (const line of event.split("\n")) {
      const [, name, value] = line.match(/^([^:]*):? ?([^]*)$/);
      if (name === "event") type = value;
      if (name === "data") data.push(value);
      if (name === "id") this.#id = value;
      if (name === "retry") this.#retry = Number(value);
    }
    if (data.length === 0) return;
    this.dispatchEvent(Object.assign(new Event(type), { data: data.join("\n"), lastEventId: this.#id }));
  }
}
