// Carillon · Transport.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

#if canImport(FoundationNetworking)
import FoundationNetworking
#else
import os
#endif

/// Sends requests over HTTP.
public protocol HTTPTransport: Sendable {
    /// Sends a request and returns the answer, whatever its status.
    ///
    /// Must not follow redirects, which would carry the token to another server.
    func send(_ request: GatewayRequest) async throws -> GatewayAnswer
}

/// An HTTP request to a gateway.
public struct GatewayRequest: Sendable {
    /// The method, such as `POST`.
    public let method: String
    /// The URL with its query.
    public let url: URL
    /// The headers, with the token.
    public let headers: [String: String]
    /// The JSON body; nil for none.
    public let body: Data?
}

/// An HTTP response of a gateway.
public struct GatewayAnswer: Sendable {
    /// The HTTP status.
    public let status: Int
    /// The body; empty if there is none.
    public let body: Data
    private let headers: [String: String]

    /// Creates an answer; the case of header names does not matter.
    public init(status: Int, headers: [String: String] = [:], body: Data = Data()) {
        self.status = status
        self.headers = Dictionary(headers.map { ($0.key.lowercased(), $0.value) }) { first, _ in first }
        self.body = body
    }

    /// The value of a header; give its name in lower case.
    public subscript(_ header: String) -> String? { self.headers[header] }
}

/// Opens WebSockets (RFC 6455).
public protocol SocketTransport: Sendable {
    /// Opens a socket to a `ws` or `wss` URL.
    ///
    /// It must accept messages of up to ``SocketLimits/mostBytes``.
    func open(_ url: URL, headers: [String: String]) async throws(SocketEnd) -> any Socket
}

/// An open WebSocket.
public protocol Socket: Sendable {
    /// Returns the next text message. Only one task calls it at a time.
    func receive() async throws(SocketEnd) -> String
    /// Sends a text message.
    func send(_ text: String) async throws(SocketEnd)
    /// Sends a ping and waits for its pong; throws when the socket ends.
    func ping() async throws(SocketEnd)
    /// Closes the socket and ends every waiting call. May be called again.
    func close()
}

/// The reason why a socket is not open.
public enum SocketEnd: Error, Equatable, Sendable {
    /// The server answered the handshake with this status.
    case refused(status: Int, body: Data)
    /// The socket closed; 1006 if the connection was lost.
    case closed(code: Int, reason: String)
    /// There is no connection, for this reason.
    case unreachable(String)
}

/// The limits of sockets.
public enum SocketLimits {
    /// The most bytes of a message: a resume may bring 500 notifications with all fields full.
    public static let mostBytes = 32 * 1024 * 1024
}

/// The clock and the randomness, which tests replace.
public struct Timing: Sendable {
    /// Waits, and throws when the task is cancelled: for reconnects, pings, token renewals and
    /// pages that failed to load.
    public var sleep: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
    /// Returns the current time.
    public var now: @Sendable () -> Date = { Date() }
    /// Returns the share of the longest backoff to wait, from 0 to 1.
    public var jitter: @Sendable () -> Double = { .random(in: 0...1) }

    /// Creates the real clock with random jitter.
    public init() {}

    /// Returns the wait before the next try: at most 0.5 s, doubled by each failure, at most 30 s.
    ///
    /// Full jitter keeps the clients of a gateway from trying again all at once.
    func backoff(after failures: Int) -> Duration {
        .seconds(self.jitter() * min(30, 0.5 * pow(2, Double(min(failures, 10)))))
    }
}

/// Foundation's HTTP client and, on Apple's systems, its WebSocket client.
public struct URLSessionTransport: HTTPTransport {
    /// Refuses redirects.
    private final class Delegate: NSObject, URLSessionTaskDelegate {
        func urlSession(
            _ session: URLSession,
            task: URLSessionTask,
            willPerformHTTPRedirection response: HTTPURLResponse,
            newRequest request: URLRequest,
            completionHandler: @escaping @Sendable (URLRequest?) -> Void
        ) {
            completionHandler(nil)
        }
    }

    /// Shared, because a session leaks unless it is invalidated.
    private static let session: URLSession = {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.timeoutIntervalForRequest = 60
        configuration.httpShouldSetCookies = false
        return URLSession(configuration: configuration, delegate: Delegate(), delegateQueue: nil)
    }()

    /// Creates a transport; all transports share one session.
    public init() {}

    /// Sends a request with a timeout of 60 s.
    public func send(_ request: GatewayRequest) async throws -> GatewayAnswer {
        let (body, response) = try await Self.session.data(for: Self.request(request.url, request.headers, request))
        guard let response = response as? HTTPURLResponse else { throw URLError(.badServerResponse) }
        let headers = response.allHeaderFields.compactMap { name, value in
            (name as? String).map { ($0, "\(value)") }
        }
        return GatewayAnswer(
            status: response.statusCode, headers: Dictionary(headers) { first, _ in first }, body: body)
    }

    private static func request(_ url: URL, _ headers: [String: String], _ call: GatewayRequest? = nil) -> URLRequest {
        var request = URLRequest(url: url, cachePolicy: .reloadIgnoringLocalCacheData, timeoutInterval: 60)
        for (name, value) in headers { request.setValue(value, forHTTPHeaderField: name) }
        if let call {
            request.httpMethod = call.method
            request.httpBody = call.body
        }
        return request
    }
}

#if canImport(Darwin)
typealias DefaultSocketTransport = URLSessionTransport

extension URLSessionTransport: SocketTransport {
    /// Opens a socket; a refused handshake shows at the first `receive`.
    public func open(_ url: URL, headers: [String: String]) async throws(SocketEnd) -> any Socket {
        let task = Self.session.webSocketTask(with: Self.request(url, headers))
        task.maximumMessageSize = SocketLimits.mostBytes
        task.resume()
        return URLSessionSocket(task: task)
    }
}

/// A socket of Foundation.
private struct URLSessionSocket: Socket {
    let task: URLSessionWebSocketTask

    func receive() async throws(SocketEnd) -> String {
        do {
            while true {
                if case .string(let text) = try await self.task.receive() { return text }
            }
        } catch {
            throw self.end(error)
        }
    }

    func send(_ text: String) async throws(SocketEnd) {
        do {
            try await self.task.send(.string(text))
        } catch {
            throw self.end(error)
        }
    }

    func ping() async throws(SocketEnd) {
        do {
            try await withCheckedThrowingContinuation { (pong: CheckedContinuation<Void, any Error>) in
                // Foundation may call this twice when a connection is lost.
                let isAnswered = OSAllocatedUnfairLock(initialState: false)
                self.task.sendPing { error in
                    let isRepeated = isAnswered.withLock { answered in
                        defer { answered = true }
                        return answered
                    }
                    guard !isRepeated else { return }
                    if let error { pong.resume(throwing: error) } else { pong.resume() }
                }
            }
        } catch {
            throw self.end(error)
        }
    }

    func close() { self.task.cancel(with: .goingAway, reason: nil) }

    private func end(_ error: any Error) -> SocketEnd {
        if let status = (self.task.response as? HTTPURLResponse)?.statusCode, status != 101 {
            return .refused(status: status, body: Data())
        }
        guard self.task.closeCode != .invalid else { return .unreachable(error.localizedDescription) }
        let reason = self.task.closeReason.map { String(decoding: $0, as: UTF8.self) } ?? ""
        return .closed(code: self.task.closeCode.rawValue, reason: reason)
    }
}
#else
typealias DefaultSocketTransport = NIOSocketTransport
#endif
