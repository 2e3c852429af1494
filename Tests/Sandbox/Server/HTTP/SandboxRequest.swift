// Carillon · SandboxRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOCore
import NIOHPACK
import Synchronization

/// A complete request over any transport.
struct SandboxRequest {
    enum Transport {
        /// Over TLS, chosen by ALPN.
        case http2, http1
        /// The control port: HTTP/1.1 without TLS.
        case plain
    }

    /// The largest body that is kept, in bytes; the rest is discarded and `isTruncated` is set.
    static let maximumBody = 65536

    let transport: Transport
    let method: String
    let path: String
    let query: String
    let headers: HPACKHeaders
    let body: [UInt8]
    let isTruncated: Bool

    /// - Parameter target: the path with its query, as on the wire.
    init(
        transport: Transport, method: String, target: String, headers: HPACKHeaders, body: [UInt8], isTruncated: Bool
    ) {
        self.transport = transport
        self.method = method
        if let mark = target.utf8.firstIndex(of: UInt8(ascii: "?")) {
            self.path = String(target[..<mark])
            self.query = String(target[target.index(after: mark)...])
        } else {
            self.path = target
            self.query = ""
        }
        self.headers = headers
        self.body = body
        self.isTruncated = isTruncated
    }

    /// Returns a number from the query, such as `since` of `?since=5`.
    func number(inQuery name: String) -> Int? { self.text(inQuery: name).flatMap { Int($0) } }

    /// Returns a raw text from the query.
    func text(inQuery name: String) -> String? {
        for field in self.query.split(separator: "&") where field.hasPrefix(name + "=") {
            return String(field.dropFirst(name.count + 1))
        }
        return nil
    }
}

/// State of one connection that outlives its requests.
struct SandboxConnection {
    /// Whether the client may open many streams: it sent a valid provider token, or does not use
    /// APNs.
    var isTrusted = false
    /// The last accepted APNs provider token.
    var providerToken: ProviderToken?
    /// When that token took the place of another; nil if it was the first.
    var providerTokenChange: Date?
}

/// The server's reaction to a request.
enum SandboxAnswer {
    /// The delay before a partial response breaks off, so that the client has read its beginning.
    static let breakDelay: TimeAmount = .milliseconds(100)

    case respond(SandboxResponse)
    /// Responds after a pause.
    case respondLater(SandboxResponse, after: SlowPause)
    /// Writes an unfinished response and breaks the stream a moment later.
    case respondInPart(SandboxResponse)
    /// Never answers; the stream stays open.
    case silence
    /// Closes the TCP connection without an answer or a TLS close_notify.
    case cut
    /// Like `cut`, but with a TCP RST, which also discards data in flight.
    case sever
    /// Sends GOAWAY with the previous stream as the last one and closes the connection (RFC 9113
    /// section 6.8).
    case goAway
    /// RST_STREAM with REFUSED_STREAM (RFC 9113 section 8.7).
    case refuse
    /// RST_STREAM with INTERNAL_ERROR, which leaves the outcome of the request open.
    case reset
}

/// When slow answers come: after a duration, or when a test says so.
package final class SlowPause: Sendable {
    let duration: Duration
    private let waiting = Mutex<[EventLoopPromise<Void>]>([])

    package init(_ duration: Duration) { self.duration = duration }

    /// Answers all slow requests so far.
    package func end() {
        let promises = self.waiting.withLock { waiting in
            defer { waiting = [] }
            return waiting
        }
        for promise in promises { promise.succeed() }
    }

    /// Completes on `eventLoop` when the answer to a request that arrives now is due.
    func end(on eventLoop: any EventLoop) -> EventLoopFuture<Void> {
        let promise = eventLoop.makePromise(of: Void.self)
        self.waiting.withLock { $0.append(promise) }
        // If it has been completed by then, this changes nothing.
        eventLoop.scheduleTask(in: TimeAmount(self.duration)) { promise.succeed() }
        return promise.futureResult
    }
}

/// A complete response.
struct SandboxResponse {
    let status: Int
    var headers: [(String, String)]
    let body: ByteBuffer

    init(status: Int, headers: [(String, String)] = [], body: ByteBuffer = ByteBuffer()) {
        self.status = status
        self.headers = headers
        self.body = body
    }

    /// The header of JSON, with Google's content type.
    static let jsonType = ("content-type", "application/json; charset=UTF-8")

    /// Returns a JSON response.
    static func json(_ status: Int, _ text: String, headers: [(String, String)] = []) -> SandboxResponse {
        SandboxResponse(status: status, headers: [Self.jsonType] + headers, body: ByteBuffer(string: text))
    }

    /// Returns a JSON response with an object; `write` writes its members.
    static func json(
        _ status: Int, headers: [(String, String)] = [], _ write: (inout JSONWriter) -> Void
    ) -> SandboxResponse {
        var writer = JSONWriter()
        writer.beginObject()
        write(&writer)
        writer.endObject()
        let body = ByteBuffer(bytes: writer.bytes)
        return SandboxResponse(status: status, headers: [Self.jsonType] + headers, body: body)
    }

    /// A response with a truncated body; 429 and 503 get a `Retry-After`.
    init(_ status: Int, unfinished text: String) {
        let delay = status == 429 || status == 503 ? [("retry-after", "5")] : []
        self = .json(status, text, headers: delay)
    }

    /// Returns a response with a line of text.
    static func plain(_ status: Int, _ text: String) -> SandboxResponse {
        let type = ("content-type", "text/plain; charset=UTF-8")
        return SandboxResponse(status: status, headers: [type], body: ByteBuffer(string: text + "\n"))
    }

    /// A response that no provider should send but some proxies do.
    init(_ nonsense: Fault.Nonsense, to request: SandboxRequest) {
        let (status, text) =
            switch nonsense {
            case .html: (502, "<html><body><h1>502 Bad Gateway</h1></body></html>")
            case .half: (503, #"{"error":{"code":503,"status":"UNAVAIL"#)
            case .empty: (500, "")
            case .huge: (200, String(repeating: "x", count: 1_000_000))
            case .echo: (502, request.headers.map { "\($0.name): \($0.value)\n" }.joined())
            case .lost: (404, "<html><body><h1>404 Not Found</h1></body></html>")
            case .page: (200, "<html><body><h1>Please log in</h1></body></html>")
            case .blank: (200, "")
            case .torn: (200, #"{"name":"projects/p/mess"#)
            }
        let type = text.hasPrefix("<html>") ? [("content-type", "text/html; charset=UTF-8")] : []
        self.init(status: status, headers: type, body: ByteBuffer(string: text))
    }
}
