// Carillon · Milliseconds.swift
// SPDX-License-Identifier: Apache-2.0

/// A monotonic time with any origin, or a duration, in milliseconds.
///
/// The state machines never read a clock; their callers pass the time.
package typealias Milliseconds = Int64
