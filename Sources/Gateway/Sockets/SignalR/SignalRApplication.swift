// Carillon · SignalRApplication.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols

/// What speaks with one connection of a hub; confined to its session's event loop.
package protocol SignalRApplication: AnyObject {
    /// The handshake is done. Called once, before anything else but ``signalRClosed(_:)``.
    func signalROpened(_ session: SignalRSession)
    /// Has to be carried out, then ``SignalRSession/complete(_:_:)`` is called, now or later.
    func signalRInvoked(_ call: SignalRCall)
    /// The client wants no more items of a stream; its call is still to be completed.
    func signalRCancelled(_ call: UInt64)
    /// The client said something that is no call: a ping, an acknowledgement, a part of a message.
    func signalRHeard()
    /// A batch of input has been handed over: what it brought about can be flushed.
    func signalRReadComplete()
    /// The client has all that was said before ``SignalRSession/requestProof(_:)`` with this number.
    func signalRProven(_ number: UInt64)
    /// More waits for the client than the limits allow; the application closes the session in its own words.
    func signalRIsTooSlow()
    /// The connection is gone, and the session with it. Called last, and once, also if the handshake never came.
    func signalRClosed()
}

extension SignalRApplication {
    package func signalRCancelled(_ call: UInt64) {}
    package func signalRHeard() {}
    package func signalRReadComplete() {}
    package func signalRProven(_ number: UInt64) {}
}
