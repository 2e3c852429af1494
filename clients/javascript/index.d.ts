// Carillon · index.d.ts
// SPDX-License-Identifier: Apache-2.0

/** The version of the package and of the server that it comes with. */
export const version: string;

// MARK: Jobs

export type Lane = "critical" | "normal" | "bulk";
export type Severity = "alert" | "warning" | "info";
export type Delivery = "push" | "in_app";
export type PushPriority = "high" | "normal";
export type Channel = "in_app" | "push" | "email";
export type JSONObject = { readonly [name: string]: unknown };
/** A time; as a string in the format of RFC 3339. */
export type Moment = string | Date;

type None<Name extends string> = { readonly [name in Name]?: null | undefined };

/** The recipients: exactly one of `user`, `users`, `topic` and `all`; `except` leaves users out. */
export type Audience = (
  | ({ readonly user: string } & None<"users" | "topic" | "all">)
  /** Up to 1,000 users. */
  | ({ readonly users: readonly string[] } & None<"user" | "topic" | "all">)
  | ({ readonly topic: string } & None<"user" | "users" | "all">)
  | ({ readonly all: true } & None<"user" | "users" | "topic">)
) & { readonly except?: readonly string[] | null };

/** The content and the rules of a notification. docs/jobs.md explains every field. */
export interface Notice {
  /** A type of the catalog. */
  readonly type: string;
  /**
   * Derived from the event that the job reports, such as `payment:9317`. You can then send the job
   * again after a timeout or a crash, and each user is notified once.
   */
  readonly id: string;
  readonly org?: string | null;
  readonly traceparent?: string | null;

  readonly title?: string | null;
  readonly body?: string | null;
  readonly template?: string | null;
  readonly vars?: JSONObject | null;
  readonly data?: JSONObject | null;
  readonly entity_type?: string | null;
  readonly entity_id?: string | null;
  readonly category?: string | null;
  readonly sound?: string | null;
  readonly state?: string | null;
  readonly url?: string | null;
  readonly image?: string | null;
  readonly badge?: number | null;
  readonly platform?: JSONObject | null;

  readonly severity?: Severity | null;
  readonly delivery?: Delivery | null;
  readonly lane?: Lane | null;
  readonly push_priority?: PushPriority | null;
  readonly channels?: readonly Channel[] | null;
  readonly collapse_key?: string | null;
  readonly digest?: string | null;

  readonly expires_at?: Moment | null;
  readonly keep_until?: Moment | null;
  readonly deliver_at?: Moment | null;
  /** `HH:MM` or `YYYY-MM-DDTHH:MM` on each recipient's clock; not together with `deliver_at`. */
  readonly deliver_local?: string | null;

  readonly event?: null | undefined;
}

/** An event that goes to open sockets only and is not stored. */
export interface EphemeralEvent {
  readonly event: string;
  readonly args?: readonly unknown[] | null;
  readonly id?: string | null;
  readonly org?: string | null;
  readonly traceparent?: string | null;
  readonly type?: null | undefined;
}

/** A request to notify someone. */
export type Job = Audience & (Notice | EphemeralEvent);

/**
 * Returns the fields of a job's stream entry: strings as they are, other values as JSON.
 *
 * @throws {InvalidJobError} the job breaks a rule that needs no catalog.
 */
export function fields(job: Job): Record<string, string>;

// MARK: Redis

/**
 * Returns the prefix of a user's streams, such as `carillon:{agbr}`.
 *
 * @param tags the words in the key `carillon:tags`, in their order; none for one Redis.
 */
export function part(user: string, tags: readonly string[]): string;

/** A client or cluster client of node-redis. */
export interface NodeRedis {
  xAdd(stream: string, id: string, fields: Record<string, string>): Promise<unknown>;
  xLen(stream: string): Promise<unknown>;
  get(key: string): Promise<unknown>;
}

/** A client or cluster client of ioredis. */
export interface IORedis {
  xadd(stream: string, ...words: string[]): Promise<unknown>;
  xlen(stream: string): Promise<unknown>;
  get(key: string): Promise<unknown>;
}

/** Appends jobs to Redis. After an error, send the same jobs again. */
export class Producer {
  constructor(
    redis: NodeRedis | IORedis,
    options?: {
      /** Appends to the user's part, which spreads the load over all masters of a cluster. */
      spread?: boolean;
      /** How many jobs may wait in a lane before `sendMany` stops; 1,000,000 by default. */
      mostWaiting?: number;
    },
  );

  /**
   * Appends a job and returns the id of its entry.
   *
   * @throws {InvalidJobError}
   */
  send(job: Job): Promise<string>;

  /**
   * Appends jobs in batches of 500 and returns their number.
   *
   * @throws {InvalidJobError} a job is invalid; the call appended none.
   * @throws {LaneFullError} a stream of the next batch was full after an earlier batch of this
   *   producer, and still is.
   */
  sendMany(jobs: Iterable<Job>): Promise<number>;
}

// MARK: HTTP

/** A job that Redis has stored. `entry` is the id of its stream entry. */
export interface Accepted {
  readonly id: string;
  readonly lane: Lane;
  readonly entry: string;
}

/** Posts jobs to the gateway, and retries. */
export class HTTPProducer {
  constructor(
    /** The gateway's address, such as `https://notify.example.com`. */
    url: string | URL,
    /** A token with the scope `service`, or a function that returns one for each try. */
    token: string | (() => string | Promise<string>),
    options?: {
      /** The time limit of each try in milliseconds; 10,000 by default. */
      timeout?: number;
      /** The most tries of a request; 5 by default. */
      tries?: number;
      /**
       * The longest backoff, and the longest `Retry-After` that the producer obeys, in
       * milliseconds; 30,000 by default. If the gateway asks for a longer wait, the call fails.
       */
      longestWait?: number;
      fetch?: typeof globalThis.fetch;
    },
  );

  /**
   * Posts a job, and returns once Redis has it.
   *
   * @throws {InvalidJobError} the job has faults, such as a type that is not in the catalog.
   * @throws {RefusedError} a retry does not help.
   * @throws {UnavailableError} send the job again later.
   */
  send(job: Job, options?: { signal?: AbortSignal }): Promise<Accepted>;

  /**
   * Posts jobs in batches of up to 1,000. If a job is invalid, the gateway accepts none of its
   * batch.
   *
   * @throws the same as `send`. Earlier batches were accepted, and after an UnavailableError
   *   perhaps some jobs of this one; you may send all jobs again.
   */
  sendMany(jobs: Iterable<Job>, options?: { signal?: AbortSignal }): Promise<Accepted[]>;
}

// MARK: Webhooks

/**
 * A step of a notification, such as `delivered`. docs/events.md explains the fields; a field that
 * does not apply is null. An event may come twice, with the same `id`, and out of order: sort by
 * `at`.
 */
export interface WebhookEvent {
  readonly id: string;
  readonly event:
    | "sent" | "delivered" | "opened" | "read" | "failed" | "suppressed" | "expired" | "cancelled"
    | "deferred" | "replaced" | "summarised" | "acted" | "token_invalid" | "device_deactivated";
  readonly at: Date;
  readonly notification: string | null;
  readonly job: string | null;
  readonly user: string | null;
  readonly org: string | null;
  readonly type: string | null;
  readonly category: string | null;
  readonly channel: Channel | null;
  readonly platform: string | null;
  readonly app: string | null;
  readonly device: string | null;
  readonly reason: string | null;
}

/**
 * Checks the signature of a webhook request and returns its events.
 *
 * @param body the raw body, before anything has parsed it.
 * @param header the header `Carillon-Signature`.
 * @param secrets the webhook's secret, or several while you replace one webhook with another.
 * @throws {StaleSignatureError} only the time is wrong. Answer 400.
 * @throws {InvalidSignatureError} anything else is wrong. Answer 400.
 */
export function verifyWebhook(
  body: Uint8Array | string,
  header: string | readonly string[] | null | undefined,
  secrets: string | readonly string[],
  options?: {
    now?: Date;
    /** The most seconds between now and the signature's time; 300 by default. */
    tolerance?: number;
  },
): Promise<WebhookEvent[]>;

// MARK: Errors

/** The base of all errors of this package. None of them holds a token or a secret. */
export class CarillonError extends Error {}

/** A field of a job that breaks a rule. */
export interface Fault {
  readonly field: string;
  readonly reason: string;
}

/** Jobs that Carillon would refuse. With several jobs, a field is `[17].title`. */
export class InvalidJobError extends CarillonError {
  constructor(faults: readonly Fault[]);
  readonly faults: readonly Fault[];
}

/** An answer of the gateway that a retry does not change, such as 401 or 403. */
export class RefusedError extends CarillonError {
  constructor(status: number, detail: string);
  readonly status: number;
  readonly detail: string;
}

/** The gateway has not confirmed the jobs. Send them again later. */
export class UnavailableError extends CarillonError {
  constructor(reason: string, options?: { retryAfter?: number; cause?: unknown });
  /** The wait in milliseconds that the gateway asked for, or 0. */
  readonly retryAfter: number;
}

/** A stream is too long for more jobs. */
export class LaneFullError extends CarillonError {
  constructor(stream: string, length: number, sent: number);
  readonly stream: string;
  readonly length: number;
  /** The number of jobs that the call appended. */
  readonly sent: number;
}

/** A webhook request that does not come from Carillon, or was changed. */
export class InvalidSignatureError extends CarillonError {}

/** A webhook request with a valid signature whose time is too far from now: a replay. */
export class StaleSignatureError extends InvalidSignatureError {}
