// Carillon · index.js
// SPDX-License-Identifier: Apache-2.0

import {
  InvalidJobError, InvalidSignatureError, LaneFullError, RefusedError, StaleSignatureError, UnavailableError,
} from "./errors.js";

export * from "./errors.js";

/** The version of the package and of the server that it comes with. */
export const version = "1.0.0-dev";

const encoder = new TextEncoder();

/**
 * Returns the fields of a job's stream entry: strings as they are, other values as JSON.
 *
 * Throws an InvalidJobError if the job breaks a rule. Carillon checks more rules when it gets the
 * job, such as those of your catalog.
 */
export function fields(job) {
  return prepare([job])[0].fields;
}

/** Returns the JSON and the fields of jobs. Throws an InvalidJobError with the faults of all. */
function prepare(jobs) {
  const faults = [];
  const prepared = jobs.map((job, index) => {
    const found = faultsOf(job);
    const members = [];
    for (const [name, value] of Object.entries(job).filter(([name, value]) => isGiven(name, value))) {
      const { text, reason } = written(value);
      const fault = reasonOf(name) ?? reason;
      if (fault) found.push({ field: name, reason: fault });
      else if (text !== undefined) members.push([name, text]);
    }
    faults.push(...found.map(({ field, reason }) => ({ field: placed(field, index, jobs.length), reason })));
    const text = `{${members.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`;
    const flat = members.map(([name, text]) => [name, text.startsWith('"') ? JSON.parse(text) : text]);
    return { job, text, fields: Object.fromEntries(flat) };
  });
  if (faults.length > 0) throw new InvalidJobError(faults);
  return prepared;
}

/** Returns a value's JSON, or the reason why Carillon would refuse it. */
function written(value) {
  let reason;
  try {
    const text = JSON.stringify(value, function (key, plain) {
      // An invalid Date turns itself into null, which would drop the field.
      const isTime = key === "" ? this[key] !== null : this[key] instanceof Date;
      if (plain === null && isTime) reason ??= "is not a time";
      if (typeof plain === "number" && !Number.isFinite(plain)) reason ??= `holds ${plain}; numbers must be finite`;
      reason ??= reasonOf(key) ?? reasonOf(plain);
      return plain;
    });
    return { text, reason };
  } catch (error) {
    return { reason: `is not JSON: ${error.message}` };
  }
}

/** Returns the reason why Carillon cannot store a text. Other values have none. */
function reasonOf(text) {
  // In Unicode mode, only half of a pair matches.
  const [found] = (typeof text === "string" && /\p{Surrogate}|\0/u.exec(text)) || [];
  if (found === undefined) return undefined;
  return found === "\0" ? "holds the character U+0000" : "holds half of a surrogate pair";
}

/** Fields to omit if they are false or empty. Carillon checks the others even if they are empty. */
const mayBeEmpty = new Set(["user", "users", "topic", "all", "except", "type", "event", "id", "lane"]);

function isGiven(name, value) {
  if (value === undefined || value === null) return false;
  return !mayBeEmpty.has(name) || (value !== false && value.length !== 0);
}

/** Returns the faults of a job, by the rules that need no catalog. */
function faultsOf(job) {
  const faults = [];
  const check = (holds, field, reason) => holds || faults.push({ field, reason });
  const has = (name) => isGiven(name, job[name]);
  const audiences = ["user", "users", "topic", "all"].filter(has);
  check(audiences.length === 1, "user", "give exactly one of user, users, topic, all");
  check(!(job.users?.length > 1_000), "users", "must be at most 1000 users; send to a topic, or several jobs");
  const isLane = !has("lane") || ["critical", "normal", "bulk"].includes(job.lane);
  check(isLane, "lane", "must be one of critical, normal, bulk");
  check(has("type") || has("event"), "type", "is missing");
  check(!has("type") || !has("event"), "type", "cannot be combined with event");
  check(has("id") || has("event"), "id", "is missing; derive it from the event that the job reports: payment:9317");
  return faults;
}

/** Puts the index of the job before a field if the call has several jobs. */
const placed = (field, index, jobs) => (jobs === 1 ? field : `[${index}].${field}`);

/**
 * Returns the prefix of a user's streams, such as `carillon:{agbr}`.
 *
 * `tags` are the words in the key `carillon:tags`, in their order; none for one Redis.
 */
export function part(user, tags) {
  if (tags.length === 0) return "carillon";
  let hash = 2_166_136_261;
  for (const byte of encoder.encode(user)) hash = Math.imul(hash ^ byte, 16_777_619);
  return `carillon:{${tags[(hash >>> 0) % tags.length]}}`;
}

/**
 * Appends jobs to Redis.
 *
 * You own the Redis client, and its errors pass through. After an error, send the same jobs again:
 * their ids prevent duplicates, except of ephemeral events.
 *
 * A job goes to the stream of its `lane`; without one, to `carillon:jobs`. The lane of its type
 * applies only if it is more urgent, so set `lane: "bulk"` for jobs that can wait.
 */
export class Producer {
  static batch = 500;

  #redis;
  #mostWaiting;
  /** The tags of the parts; undefined until they are read. */
  #tags;
  /** The streams that were full at their last check. */
  #full = new Set();

  constructor(redis, { spread = false, mostWaiting = 1_000_000 } = {}) {
    this.#redis = redis;
    this.#mostWaiting = mostWaiting;
    this.#tags = spread ? undefined : [];
  }

  /** Appends a job and returns the id of its entry. */
  async send(job) {
    const [prepared] = prepare([job]);
    await this.#readTags();
    return this.#append(prepared);
  }

  /**
   * Appends jobs in batches of 500 and returns their number.
   *
   * Throws an InvalidJobError before it appends any job. Throws a LaneFullError if a stream of the
   * next batch was full after an earlier batch of this producer, and still is.
   */
  async sendMany(jobs) {
    const prepared = prepare([...jobs]);
    await this.#readTags();
    for (let sent = 0; sent < prepared.length; sent += Producer.batch) {
      const batch = prepared.slice(sent, sent + Producer.batch);
      const streams = [...new Set(batch.map(({ job }) => this.#stream(job)))];
      for (const stream of streams.filter((stream) => this.#full.has(stream))) {
        const length = await this.#look(stream);
        if (this.#full.has(stream)) throw new LaneFullError(stream, length, sent);
      }
      // Send all commands before awaiting any, so that the client pipelines them.
      const appended = batch.map((one) => this.#append(one));
      const looks = streams.map((stream) => this.#look(stream));
      const results = await Promise.allSettled([...appended, ...looks]);
      // A failed XLEN does not mean that the jobs failed.
      const failure = results.slice(0, batch.length).find(({ status }) => status === "rejected");
      if (failure) throw failure.reason;
    }
    return prepared.length;
  }

  #append({ job, fields }) {
    const stream = this.#stream(job);
    // node-redis has camelCase commands, ioredis has lower-case ones.
    if (this.#redis.xAdd) return this.#redis.xAdd(stream, "*", fields);
    return this.#redis.xadd(stream, "*", ...Object.entries(fields).flat());
  }

  #stream({ user, id, lane }) {
    // A job for several users may go to any part.
    const start = part(user || id || "", this.#tags);
    return !lane || lane === "normal" ? `${start}:jobs` : `${start}:jobs:${lane}`;
  }

  /** Returns the length of a stream, and remembers whether it is full. */
  async #look(stream) {
    const length = await (this.#redis.xLen ? this.#redis.xLen(stream) : this.#redis.xlen(stream));
    if (length >= this.#mostWaiting / Math.max(1, this.#tags.length)) this.#full.add(stream);
    else this.#full.delete(stream);
    return length;
  }

  async #readTags() {
    this.#tags ??= String((await this.#redis.get("carillon:tags")) ?? "").split(" ").filter(Boolean);
  }
}

/**
 * Posts jobs to the gateway.
 *
 * It retries 429, 503, a proxy's 502 and 504, and requests without an answer, with exponential
 * backoff and full jitter. The jobs' ids prevent duplicates. An ephemeral event is not stored, so a
 * retry may deliver it twice.
 */
export class HTTPProducer {
  /** The limits of a request. The gateway takes 1,000 jobs, 16 MB and 500,000 JSON values. */
  static #mostJobs = 1_000;
  static #mostBytes = 8 * 1024 * 1024;
  static #mostValues = 400_000;

  #place;
  #token;
  #options;

  /** @param token a token with the scope `service`, or a function that returns one for each try. */
  constructor(url, token, { timeout = 10_000, tries = 5, longestWait = 30_000, fetch = globalThis.fetch } = {}) {
    this.#place = placeOfJobs(url);
    this.#token = token;
    this.#options = { timeout, tries, longestWait, fetch };
  }

  /** Posts a job, and returns `id`, `lane` and `entry` once Redis has it. */
  async send(job, { signal } = {}) {
    const [accepted] = await this.sendMany([job], { signal });
    return accepted;
  }

  /**
   * Posts jobs in batches of up to 1,000, and returns what `send` returns for each.
   *
   * If a job is invalid, the gateway accepts none of its batch. After an InvalidJobError or a
   * RefusedError, fix the cause. After an UnavailableError, the gateway may have accepted some
   * jobs: send all again later.
   */
  async sendMany(jobs, { signal } = {}) {
    const rest = prepare([...jobs]).map(({ text }) => text);
    const count = rest.length;
    const accepted = [];
    while (rest.length > 0) {
      let [size, values, end] = [0, 0, 0];
      while (end < Math.min(rest.length, HTTPProducer.#mostJobs)) {
        size += encoder.encode(rest[end]).length + 1;
        // Each value but the first follows a comma or a bracket.
        values += rest[end].split(/[,[{]/).length;
        if (end > 0 && (size > HTTPProducer.#mostBytes || values > HTTPProducer.#mostValues)) break;
        end += 1;
      }
      accepted.push(...(await this.#post(rest.splice(0, end), accepted.length, count, signal)));
    }
    return accepted;
  }

  /** Sends a batch until the gateway accepts it or no tries are left. */
  async #post(batch, first, count, signal) {
    const { tries, longestWait } = this.#options;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#try(batch, first, count, signal);
      } catch (error) {
        if (!(error instanceof UnavailableError) || attempt >= tries || error.retryAfter > longestWait) throw error;
        const backoff = Math.min(longestWait, 200 * 2 ** (attempt - 1));
        await sleep(error.retryAfter + Math.random() * backoff, signal);
      }
    }
  }

  /** Sends a batch once. Throws an UnavailableError if a retry may help. */
  async #try(batch, first, count, signal) {
    const token = String((typeof this.#token === "function" ? await this.#token() : this.#token) ?? "").trim();
    // The error of fetch would show such a token.
    if (!/^[!-~]+$/.test(token)) throw new TypeError("token: must be printable ASCII without spaces");
    const { status, retryAfter, text } = await this.#exchange(token, `[${batch.join(",")}]`, signal);
    const { jobs, detail, errors } = parsed(text);
    if (status === 202 && jobs?.length === batch.length) return jobs;
    // A proxy's answer may have another form.
    const known = Array.isArray(errors) ? errors.filter((one) => one?.field) : [];
    const faults = known.map(({ field, reason }) => {
      const [, index, name] = /^\[(\d+)\]\.(.*)$/s.exec(field) ?? [];
      return { field: index ? placed(name, first + Number(index), count) : field, reason };
    });
    const invalid = new InvalidJobError(faults);
    if (status === 422 && faults.length > 0) throw invalid;
    const refused = new RefusedError(status, [detail || "no detail", invalid.message].filter(Boolean).join("; "));
    if (![429, 502, 503, 504].includes(status)) throw refused;
    throw new UnavailableError(refused.message, { retryAfter: milliseconds(retryAfter) });
  }

  async #exchange(token, body, signal) {
    const { timeout, fetch } = this.#options;
    signal?.throwIfAborted();
    const controller = new AbortController();
    const abort = () => controller.abort(signal.reason);
    signal?.addEventListener("abort", abort);
    const timer = setTimeout(() => controller.abort(new Error(`no answer within ${timeout} ms`)), timeout);
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "user-agent": `carillon-javascript/${version}`,
    };
    try {
      const request = { method: "POST", headers, body, redirect: "manual", signal: controller.signal };
      const answer = await fetch(this.#place, request);
      return { status: answer.status, retryAfter: answer.headers.get("retry-after"), text: await answer.text() };
    } catch (error) {
      signal?.throwIfAborted();
      throw new UnavailableError(error.cause?.message || error.cause?.code || error.message, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }
}

/** Returns the URL to post jobs to. Errors do not show the address, which may hold a secret. */
function placeOfJobs(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    // The error would show the address.
  }
  if (!/^https?:$/.test(url?.protocol)) throw new TypeError("url: must be the http or https address of a gateway");
  if (url.username || url.password || url.search || url.hash) {
    throw new TypeError("url: must not have a user, a query or a fragment; the token is an argument");
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}/v1/jobs`;
}

/** Returns the members of a JSON object; none if the text is something else. */
function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

/** Returns `Retry-After` in milliseconds: seconds or an HTTP date (RFC 9110, section 10.2.3). */
function milliseconds(header) {
  const value = /^\d+$/.test(header ?? "") ? 1_000 * Number(header) : Date.parse(header) - Date.now();
  return Math.max(0, value || 0);
}

function sleep(delay, signal) {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      signal?.aborted ? reject(signal.reason) : resolve();
    };
    const timer = setTimeout(end, delay);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/**
 * Checks the signature of a webhook request and returns its events.
 *
 * Pass the raw body and the header `Carillon-Signature`. One of the secrets must match; pass two
 * while you replace one webhook with another. `tolerance` is in seconds.
 *
 * Throws a StaleSignatureError if only the time is wrong, and otherwise an InvalidSignatureError.
 * Answer 400 to both.
 */
export async function verifyWebhook(body, header, secrets, { now = new Date(), tolerance = 300 } = {}) {
  const bytes = typeof body === "string" ? encoder.encode(body) : body;
  if (!(bytes instanceof Uint8Array)) throw new TypeError("body: must be the raw bytes or text of the request");
  const keys = [secrets].flat();
  if (keys.length === 0 || !keys.every(Boolean)) throw new TypeError("secrets: a secret is missing or empty");
  const parts = String(header ?? "").split(",").map((text) => text.trim().split("="));
  const times = parts.filter(([name]) => name === "t").map(([, value]) => value);
  const codes = parts.filter(([name, value]) => name === "v1" && /^[0-9a-f]{64}$/i.test(value));
  if (times.length !== 1 || !/^\d{1,12}$/.test(times[0])) throw new InvalidSignatureError("the signature is malformed");
  // Node 18 has no global crypto.
  const { subtle } = globalThis.crypto ?? (await import("node:crypto")).webcrypto;
  const signed = await new Blob([`${times[0]}.`, bytes]).arrayBuffer();
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  let isOurs = false;
  for (const secret of keys) {
    const key = await subtle.importKey("raw", encoder.encode(secret), algorithm, false, ["verify"]);
    for (const [, code] of codes) {
      const given = Uint8Array.from(code.match(/../g), (digits) => parseInt(digits, 16));
      isOurs = (await subtle.verify("HMAC", key, given, signed)) || isOurs;
    }
  }
  if (!isOurs) throw new InvalidSignatureError("the signature does not fit the body and the secret");
  const age = Math.abs(now.getTime() / 1_000 - Number(times[0]));
  if (!(age <= tolerance)) throw new StaleSignatureError(`the signature is ${Math.round(age)} s from now`);
  const { events } = parsed(new TextDecoder().decode(bytes));
  if (!Array.isArray(events)) throw new InvalidSignatureError("the body is signed and holds no events");
  return events.map((event) => ({ ...event, at: new Date(event.at) }));
}
