// Carillon · SignalRAction.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What has to be done for a connection, in this order.
package enum SignalRAction: Sendable, Equatable {
    /// Whole records, for the transport that is attached.
    case write([UInt8])
    /// The handshake is done: the connection takes what is sent to it from now on.
    case opened(version: Int)
    /// Carry it out, then call ``SignalRConnection/complete(_:_:now:)``, also if its client wants no answer.
    case invoke(SignalRCall)
    /// The client wants no more items of this call; it is still to be completed.
    case cancel(call: UInt64)
    /// An item of a stream that came with a call.
    case uploadedItem(call: UInt64, streamID: String, item: JSONValue)
    /// The end of a stream that came with a call; `error` if the client failed.
    case uploadEnded(call: UInt64, streamID: String, error: String?)
    /// The answer to an invocation of ``SignalRConnection/invokeClient(target:arguments:now:)``.
    case clientResult(SignalRCompletion)
    /// Nothing comes any more. Close the transport after what was written.
    case end(SignalREnd)
}
