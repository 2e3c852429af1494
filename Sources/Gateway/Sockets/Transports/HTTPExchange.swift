// Carillon · HTTPExchange.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// One request and its answer, on the event loop of its connection.
///
/// The answer may come later, whole or in pieces; until then the connection reads no further request.
package final class HTTPExchange {
    /// An answer that was given before the body was there.
    private struct Early {
        let status: HTTPResponseStatus
        let headers: HTTPHeaders
        let body: ByteBuffer
    }

    package let head: HTTPRequestHead
    /// Empty until all of it is there.
    package private(set) var body = ByteBuffer()
    package let address: SocketAddress?
    package let eventLoop: any EventLoop
    /// Called once if the client leaves before the answer is complete, or if the body is cut: too large, or too late.
    package var onAbort: (() -> Void)?
    /// Called once when the body is there, in place of ``TransportEndpoint/handle(_:)``; for
    /// ``TransportEndpoint/begin(_:)`` to set.
    package var onBody: ((ByteBuffer) -> Void)?
    private weak var door: DoorHandler?
    private var isWhole = false
    private var isAnswered = false
    private var early: Early?

    init(head: HTTPRequestHead, address: SocketAddress?, eventLoop: any EventLoop, door: DoorHandler) {
        self.head = head
        self.address = address
        self.eventLoop = eventLoop
        self.door = door
    }

    /// The body is there: gives the answer that waits for it, or has `endpoint` answer.
    func complete(_ body: ByteBuffer, _ endpoint: any TransportEndpoint) {
        self.isWhole = true
        let onBody = self.onBody
        self.onBody = nil
        if let early {
            self.early = nil
            self.door?.answer(self.head, early.status, early.headers, early.body)
        } else if let onBody {
            onBody(body)
        } else {
            self.body = body
            endpoint.handle(self)
        }
    }

    /// Whether its body is kept as it comes in: endpoints read those of POST only, and a request
    /// that is answered already needs none.
    var keepsBody: Bool { self.head.method == .POST && !self.isAnswered }

    /// The path without its query.
    package var path: Substring { self.head.uri.prefix { $0 != "?" } }

    /// Answers; only the first answer counts.
    ///
    /// An answer that comes before the body waits for it, or a client that is still writing might never read the answer.
    package func respond(_ status: HTTPResponseStatus, headers: HTTPHeaders = [:], body: ByteBuffer = ByteBuffer()) {
        guard !self.isAnswered else { return }
        self.finish()
        guard self.isWhole else {
            self.early = Early(status: status, headers: headers, body: body)
            return
        }
        self.door?.answer(self.head, status, headers, body)
    }

    /// Answers with a refusal.
    package func respond(_ refusal: TransportRefusal) {
        self.respond(refusal.status, headers: refusal.headers, body: ByteBuffer(bytes: refusal.body))
    }

    /// Who sent the request, as far as the proxies that are trusted say; nil for a Unix socket.
    package var client: ClientAddress? { self.door?.client(of: self.head) }

    /// Counts the connection for its client's address, before a stream or a poll begins; false if the address has too
    /// many.
    package func countStream() -> Bool { self.door?.countAddress(self.head) ?? false }

    /// What is answered then.
    package static let tooManyStreams = TransportRefusal.problem(
        .tooManyRequests, "too many streams of this address are open")

    /// Begins an answer without an end of its own; the connection ends with it.
    package func begin(_ status: HTTPResponseStatus, headers: HTTPHeaders) {
        guard !self.isAnswered else { return }
        self.door?.beginStream(self.head, status, headers)
    }

    /// Adds to an answer that was begun.
    package func write(_ bytes: ByteBuffer) {
        guard !self.isAnswered else { return }
        self.door?.writeStream(bytes)
    }

    /// Ends an answer that was begun.
    package func end() {
        guard !self.isAnswered else { return }
        self.finish()
        self.door?.endStream()
    }

    /// Bytes that wait for a slow reader.
    package var backlog: Int { self.door?.backlog ?? 0 }

    private func finish() {
        self.isAnswered = true
        self.onAbort = nil
    }

    func abort() {
        self.onBody = nil
        guard !self.isAnswered else { return }
        self.isAnswered = true
        let onAbort = self.onAbort
        self.onAbort = nil
        onAbort?()
    }
}
