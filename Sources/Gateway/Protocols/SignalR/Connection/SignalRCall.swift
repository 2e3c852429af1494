// Carillon · SignalRCall.swift
// SPDX-License-Identifier: Apache-2.0

/// An invocation that the server has to carry out.
package struct SignalRCall: Sendable, Equatable {
    /// Names it towards ``SignalRConnection``, since its client's id may be missing or used twice.
    package let number: UInt64
    package let invocation: SignalRInvocation
}
