// Carillon · HubClient.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import Protocols
import Support
import Synchronization

@testable import Sockets

/// A clock that a test sets.
final class ManualClock: Sendable {
    private let time: Mutex<Timestamp>

    init(_ seconds: Int64) {
        self.time = Mutex(Timestamp(seconds: seconds))
    }

    var now: Timestamp { self.time.withLock { $0 } }

    func set(_ seconds: Int64) { self.time.withLock { $0 = Timestamp(seconds: seconds) } }
}

extension RunningHub {
    /// Runs `body` with the base URL of a listener whose connections live on this hub's loop.
    func withListener(
        _ endpoint: any TransportEndpoint,
        _ body: (TransferClient, String) async throws -> Void
    ) async throws {
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        let http = try TransferClient(configuration: configuration, logger: TestLog.logger)
        let connections = ConnectionChannel(
            responder: { _, _, _ in },
            endpoints: [endpoint],
            http: HTTP1Channel.Configuration()
        )
        let listener = try await ServerBootstrap(group: self.eventLoop)
            .childChannelInitializer { channel in
                connections.setup(channel: channel, logger: TestLog.logger).map { _ in }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let port = listener.localAddress?.port ?? 0
        try await withCleanUp {
            try? await listener.close().get()
            await http.shutdown()
        } _: {
            try await body(http, "http://127.0.0.1:\(port)")
        }
    }
}

/// A long-polling client of the SignalR hub.
struct HubClient {
    private let http: TransferClient
    private let url: String
    /// All received messages.
    private(set) var messages: [JSONValue] = []

    /// Runs `body` with the URL of a listener whose SignalR hub serves `running`.
    static func withListener(
        _ running: RunningHub,
        now: @escaping @Sendable () -> Milliseconds = systemUptime,
        _ body: (TransferClient, String) async throws -> Void
    ) async throws {
        let endpoint = NotificationHub.endpoint(hub: running.hub, now: now)
        try await running.withListener(endpoint) { http, url in try await body(http, url + NotificationHub.path) }
    }

    /// Negotiates, opens the connection by a first poll, and sends the handshake.
    static func open(_ http: TransferClient, _ url: String, token: String) async throws -> HubClient {
        let client = try await Self.negotiate(http, url, token: token)
        let first = try await Self.send(http, .get, client.url, token: token)
        guard first.status == 200 else { throw FixtureError("the first poll was answered with \(first.status)") }
        try await client.post(#"{"protocol":"json","version":1}"#, token: token)
        return client
    }

    /// Negotiates a connection without opening it.
    static func negotiate(_ http: TransferClient, _ url: String, token: String) async throws -> HubClient {
        let answer = try await Self.send(http, .post, "\(url)/negotiate?negotiateVersion=1", token: token)
        guard let id = try JSONParser.parse(answer.body)["connectionToken"]?.string else {
            throw FixtureError("negotiation failed: \(answer.status)")
        }
        return HubClient(http: http, url: "\(url)?id=\(id)")
    }

    private init(http: TransferClient, url: String) {
        self.http = http
        self.url = url
    }

    private static func send(
        _ http: TransferClient, _ method: TransferRequest.Method, _ url: String, token: String, body: [UInt8] = []
    ) async throws -> TransferResponse {
        let request = TransferRequest(
            method, url: url, headers: [(name: "authorization", value: "Bearer \(token)")], body: body,
            timeout: .seconds(300))
        return try await http.answer(request)
    }

    /// Sends a record.
    func post(_ record: String, token: String) async throws {
        let answer = try await Self.send(
            self.http, .post, self.url, token: token, body: Array(record.utf8) + [0x1E])
        guard answer.status == 200 else { throw FixtureError("POST was answered with \(answer.status)") }
    }

    /// Polls until the messages meet a condition.
    mutating func poll(until what: String, token: String, _ condition: (HubClient) -> Bool) async throws {
        while !condition(self) {
            let answer = try await Self.send(self.http, .get, self.url, token: token)
            guard answer.status == 200 else {
                throw FixtureError("waited for \(what), and GET was answered with \(answer.status)")
            }
            self.messages += answer.body.split(separator: 0x1E).compactMap { try? JSONParser.parse(Array($0)) }
        }
    }

    /// Polls until the first count has arrived.
    mutating func sync(token: String) async throws {
        try await self.poll(until: "the count", token: token) { client in
            client.messages.contains { $0["target"]?.string == "UnreadCountChanged" }
        }
    }

    /// Ends the connection, as Microsoft's clients do.
    func delete(token: String) async throws {
        _ = try await Self.send(self.http, .delete, self.url, token: token)
    }

    /// Returns the status of a poll; drops its messages.
    func status(token: String) async throws -> Int {
        try await Self.send(self.http, .get, self.url, token: token).status
    }

    /// The completion of an invocation.
    func completion(_ id: String) -> JSONValue? {
        self.messages.first { $0["type"]?.integer == 3 && $0["invocationId"]?.string == id }
    }

    /// The Close message.
    var close: JSONValue? { self.messages.first { $0["type"]?.integer == 7 } }
}
