// Carillon · SignalRClientInvocation.swift
// SPDX-License-Identifier: Apache-2.0

/// A call of a client's method, whose answer comes as ``SignalRAction/clientResult(_:)``.
package struct SignalRClientInvocation: Sendable, Equatable {
    package let invocationID: String
    /// To be written if the admission says so.
    package let record: SignalRRecord
    package let admission: SignalRAdmission
}
