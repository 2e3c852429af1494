// Carillon · EngineIOApplication.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols

/// What speaks over a connection of Engine.IO; confined to the connection's event loop.
package protocol EngineIOApplication: AnyObject {
    /// The connection is up. Called first, and once.
    func engineIOOpened(_ connection: EngineIOConnection)
    func engineIOReceived(_ message: EngineIOMessage)
    /// A batch of input has been handed over: what it brought about can be flushed.
    func engineIOReadComplete()
    /// The client has all that was sent before the proof of this number was requested.
    func engineIOProven(_ sequence: UInt64)
    /// Whether a WebSocket's ping may be answered, or a packet without a message taken; whoever gets too many closes the
    /// connection.
    func engineIOReceivedPing() -> Bool
    /// More waits for the client's WebSocket than the limits allow; the application closes the connection.
    func engineIOIsTooSlow()
    /// The process is about to end; whoever can, closes at leisure.
    func engineIOShouldQuiesce()
    /// When ``engineIOTick(now:)`` is due; nil if nothing is.
    var engineIODeadline: Milliseconds? { get }
    func engineIOTick(now: Milliseconds)
    /// The connection is over. Called last, and once.
    func engineIOClosed(_ reason: EngineIOCloseReason)
}

extension EngineIOApplication {
    package var engineIODeadline: Milliseconds? { nil }
    package func engineIOReadComplete() {}
    package func engineIOProven(_ sequence: UInt64) {}
    package func engineIOReceivedPing() -> Bool { true }
    package func engineIOShouldQuiesce() {}
    package func engineIOTick(now: Milliseconds) {}
}
