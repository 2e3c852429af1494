// Carillon · SignalRMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A message of the hub protocol (its specification's types 1 to 9).
package enum SignalRMessage: Sendable, Equatable {
    /// Types 1 and 4.
    case invocation(SignalRInvocation)
    /// Type 2: an item of the stream that an invocation opened, in either direction.
    case streamItem(invocationID: String, item: JSONValue)
    /// Type 3.
    case completion(SignalRCompletion)
    /// Type 5: the client wants no more items.
    case cancelInvocation(invocationID: String)
    /// Type 6.
    case ping
    /// Type 7.
    case close(error: String?, allowReconnect: Bool)
    /// Type 8: all counted messages up to this one are there.
    case acknowledgement(sequenceID: Int64)
    /// Type 9: the number of the counted message that comes next.
    case sequence(sequenceID: Int64)

    /// Whether stateful reconnect counts it and sends it again: types 1 to 5.
    package var isCounted: Bool {
        switch self {
        case .invocation, .streamItem, .completion, .cancelInvocation: true
        case .ping, .close, .acknowledgement, .sequence: false
        }
    }
}
