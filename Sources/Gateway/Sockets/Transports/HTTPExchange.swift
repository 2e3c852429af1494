// Carillon · HTTPExchange.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// One request and its answer, on the event loop of its connection.
///
/// The answer may come later, whole or in pieces; until then the connection reads no further
/// request.
package final class HTTPExchange {
    /// An answer given before the body arrived.
    private struct Early {
        let status: HTTPResponseStatus
        let headers: HTTPHeaders
        let body: ByteBuffer
    }

    private(set) var head: HTTPRequestHead
    /// Empty until all of it has arrived.
    private(set) var body = ByteBuffer()
    let eventLoop: any EventLoop
    /// Called once if the client leaves before the answer is complete, or if the body is cut
    /// because it is too large or too late.
    var onAbort: (() -> Void)?
    /// Called once with the body, in place of ``TransportEndpoint/handle(_:)``; set by
    /// ``TransportEndpoint/begin(_:)``.
    var onBody: ((ByteBuffer) -> Void)?
    private weak var connection: ConnectionHandler?
    private var isWhole = false
    private var isAnswered = false
    private var early: Early?

    init(head: HTTPRequestHead, eventLoop: any EventLoop, connection: ConnectionHandler) {
        self.head = head
        self.eventLoop = eventLoop
        self.connection = connection
    }

    /// Takes the complete body: sends the early answer, or lets `endpoint` answer.
    func complete(_ body: ByteBuffer, _ endpoint: any TransportEndpoint) {
        self.isWhole = true
        let onBody = self.onBody
        self.onBody = nil
        if let early {
            self.early = nil
            self.connection?.answer(self.head, early.status, early.headers, early.body)
        } else if let onBody {
            onBody(body)
        } else {
            self.body = body
            endpoint.handle(self)
        }
    }

    /// Whether the body is kept: endpoints read only bodies of POST, and an answered request needs
    /// none.
    var keepsBody: Bool { self.head.method == .POST && !self.isAnswered }

    /// The path without its query.
    var path: Substring { self.head.path }

    /// Answers; only the first answer counts.
    ///
    /// An answer that comes before the body waits for it; a client that is still writing might
    /// never read it.
    func respond(_ status: HTTPResponseStatus, headers: HTTPHeaders = [:], body: ByteBuffer = ByteBuffer()) {
        guard !self.isAnswered else { return }
        self.markAnswered()
        var headers = headers
        headers.addRetryAfter(status)
        guard self.isWhole else {
            self.early = Early(status: status, headers: headers, body: body)
            return
        }
        self.connection?.answer(self.head, status, headers, body)
    }

    func respond(_ refusal: TransportRefusal) {
        self.respond(refusal.status, headers: refusal.headers, body: ByteBuffer(bytes: refusal.body))
    }

    /// The client's address, as far as trusted proxies report it; nil for a Unix socket.
    var client: ClientAddress? { self.connection?.client(of: self.head) }

    /// Counts the connection for its client's address before a stream or a poll begins; false if
    /// the address has too many, or the client has left.
    func countStream() -> Bool { !self.isAnswered && self.connection?.countAddress(self.head) ?? false }

    /// The answer if ``countStream()`` is false.
    static let tooManyStreams = TransportRefusal.problem(
        .tooManyRequests, "too many streams of this address are open")

    /// Begins an answer in pieces; the connection ends with it.
    func begin(_ status: HTTPResponseStatus, headers: HTTPHeaders) {
        guard !self.isAnswered else { return }
        self.connection?.beginStream(self.head, status, headers)
        // A stream lasts for hours and needs none of its request's fields.
        self.head = HTTPRequestHead(version: self.head.version, method: self.head.method, uri: self.head.uri)
    }

    /// Adds a piece to the answer.
    func write(_ bytes: ByteBuffer) {
        guard !self.isAnswered else { return }
        self.connection?.writeStream(bytes)
    }

    /// Ends an answer in pieces.
    func end() {
        guard !self.isAnswered else { return }
        self.markAnswered()
        self.connection?.endStream()
    }

    /// Bytes that wait for a slow reader.
    var backlog: Int { self.connection?.backlog ?? 0 }

    private func markAnswered() {
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

extension HTTPRequestHead {
    /// The path without the query; cut at a byte, which is faster than at a `Character`.
    ///
    /// A target in absolute form begins with a scheme and a host (RFC 9112, section 3.2.2).
    var path: Substring {
        let slash = UInt8(ascii: "/")
        let path = self.uri.utf8.prefix { $0 != UInt8(ascii: "?") }
        guard path.first != slash, let mark = path.firstRange(of: "://".utf8) else { return Substring(path) }
        return Substring(path[mark.upperBound...].drop { $0 != slash })
    }
}
