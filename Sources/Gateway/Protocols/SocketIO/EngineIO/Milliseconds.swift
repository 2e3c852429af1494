// Carillon · Milliseconds.swift
// SPDX-License-Identifier: Apache-2.0

/// A monotonic time from any origin, or a span of time, in milliseconds.
///
/// The machines never read a clock: whoever drives them says what time it is.
package typealias Milliseconds = Int64
