// Carillon · errors.js
// SPDX-License-Identifier: Apache-2.0

/** The base of all errors of this package. None of them holds a token or a secret. */
export class CarillonError extends Error {
  get name() { return this.constructor.name; }
}

/**
 * Jobs that Carillon would refuse. `faults` lists every field at fault with the reason.
 *
 * With several jobs, a field is `[17].title` if the job at index 17 has the fault.
 */
export class InvalidJobError extends CarillonError {
  constructor(faults) {
    super(faults.map(({ field, reason }) => `${field}: ${reason}`).join("; "));
    this.faults = faults;
  }
}

/** An answer of the gateway that a retry does not change, such as 401 or 403. */
export class RefusedError extends CarillonError {
  constructor(status, detail) {
    super(`the gateway answered ${status}: ${detail}`);
    Object.assign(this, { status, detail });
  }
}

/**
 * The gateway has not confirmed the jobs. Send them again later: their ids prevent duplicates.
 *
 * `retryAfter` is the wait in milliseconds that the gateway asked for, or 0.
 */
export class UnavailableError extends CarillonError {
  constructor(reason, { retryAfter = 0, cause } = {}) {
    super(`the gateway is unavailable: ${reason}`, { cause });
    this.retryAfter = retryAfter;
  }
}

/** A stream is too long for more jobs. `sent` counts the jobs that the call appended. */
export class LaneFullError extends CarillonError {
  constructor(stream, length, sent) {
    super(`${stream}: holds ${length} jobs; ${sent} of this call were sent, send the rest later`);
    Object.assign(this, { stream, length, sent });
  }
}

/** A webhook request that does not come from Carillon, or was changed. */
export class InvalidSignatureError extends CarillonError {}

/** A webhook request with a valid signature whose time is too far from now: a replay. */
export class StaleSignatureError extends InvalidSignatureError {}
