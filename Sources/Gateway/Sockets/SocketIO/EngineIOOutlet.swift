// Carillon · EngineIOOutlet.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// The session's end of a WebSocket that may live on another event loop.
///
/// What is said gathers until ``flush()``, and changes loops in one hop.
final class EngineIOOutlet {
    enum Word: Sendable {
        case text([UInt8])
        case binary([UInt8])
        /// A whole frame that other sockets share.
        case frame(ByteBuffer)
        case proof(UInt64)
        case close(WebSocketCloseCode)
        case drop
    }

    enum Target {
        /// On the session's own loop.
        case near(WebSocketHandler)
        case far(LoopReference<WebSocketHandler>)
    }

    let carrier: EngineIOCarrier
    private let target: Target
    private let eventLoop: any EventLoop
    private var gathered: [Word] = []

    /// - Parameter eventLoop: The WebSocket's.
    init(carrier: EngineIOCarrier, target: Target, eventLoop: any EventLoop) {
        self.carrier = carrier
        self.target = target
        self.eventLoop = eventLoop
    }

    func say(_ word: Word) {
        switch self.target {
        case .near(let handler): Self.say(word, on: handler, self.eventLoop)
        case .far: self.gathered.append(word)
        }
    }

    func flush() {
        switch self.target {
        case .near(let handler): handler.flush()
        case .far(let reference):
            guard !self.gathered.isEmpty else { return }
            let words = self.gathered
            self.gathered = []
            let eventLoop = self.eventLoop
            reference.call { handler in
                for word in words { Self.say(word, on: handler, eventLoop) }
                handler.flush()
            }
        }
    }

    /// Closes a WebSocket whose session is gone.
    static func close(_ reference: LoopReference<WebSocketHandler>, _ eventLoop: any EventLoop) {
        reference.call { handler in
            Self.say(.close(.policyViolation), on: handler, eventLoop)
            handler.flush()
        }
    }

    private static func say(_ word: Word, on handler: WebSocketHandler, _ eventLoop: any EventLoop) {
        switch word {
        case .text(let bytes): handler.send(text: bytes)
        case .binary(let bytes): handler.send(binary: bytes)
        case .frame(let frame): handler.send(frame: frame)
        case .proof(let sequence): handler.requestProof(sequence)
        case .drop: handler.drop()
        case .close(let code):
            guard !handler.isClosing else { return }
            handler.close(code, reason: "")
            // Nobody ticks a socket whose session is over.
            let reference = LoopReference(handler, eventLoop: eventLoop)
            eventLoop.scheduleTask(in: .seconds(5)) { reference.call { $0.drop() } }
        }
    }
}
