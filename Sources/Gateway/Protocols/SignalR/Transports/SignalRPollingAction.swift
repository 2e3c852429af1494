// Carillon · SignalRPollingAction.swift
// SPDX-License-Identifier: Apache-2.0

/// What has to be done for a long-polling connection, in this order.
package enum SignalRPollingAction: Sendable, Equatable {
    /// Answer this GET.
    case answer(poll: UInt64, SignalRResponse)
    /// The connection is over: forget its id, so that later requests get 404, and tell ``SignalRConnection`` with
    /// ``SignalRConnection/transportLost(now:)``.
    case end(End)

    package enum End: String, Sendable, Equatable {
        /// The server closed it, and the client has all of it.
        case closed
        /// The client sent DELETE.
        case deleted
        /// No GET came for too long.
        case silent
        /// An answer could not be written, and what it held cannot be sent again without risk of a repeat.
        case responseLost
        /// More waits for the client than is kept for it.
        case overflow
    }
}
