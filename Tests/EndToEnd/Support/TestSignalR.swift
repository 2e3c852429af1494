// Carillon · TestSignalR.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support

/// SignalR messages that all transports share.
enum TestSignalR {
    static let path = "/hubs/notifications"

    static func record(_ json: String) -> [UInt8] { Array(json.utf8) + [0x1E] }

    static let handshake = Self.record(#"{"protocol":"json","version":1}"#)

    static func call(_ method: String, _ arguments: String = "", id: String) -> [UInt8] {
        Self.record(#"{"type":1,"invocationId":"\#(id)","target":"\#(method)","arguments":[\#(arguments)]}"#)
    }

    /// Negotiates and returns the connection token.
    static func negotiate(_ gateway: Gateway, user: String, query: String = "?negotiateVersion=1") async throws
        -> String
    {
        let token = try await Stack.token(user: user)
        let answer = try await gateway.call(.post, "\(Self.path)/negotiate\(query)", token: token)
        guard let id = (answer.body["connectionToken"] ?? answer.body["connectionId"])?.string else {
            throw FixtureError("negotiation failed: \(answer.status)")
        }
        return id
    }

    /// Opens a WebSocket and sends the handshake.
    static func open(
        _ gateway: Gateway,
        user: String,
        query: String = "",
        behaviour: TestSocket.Behaviour = .init()
    ) async throws -> TestSocket {
        let socket = try await TestSocket.open(
            port: gateway.port,
            token: try await Stack.token(user: user),
            query: query,
            path: Self.path,
            behaviour: behaviour
        )
        try await eventually("the socket is up") { socket.status == 101 }
        try await socket.send(opcode: 1, payload: Self.handshake)
        return socket
    }

    /// Opens a WebSocket and waits for the first unread count.
    static func synced(_ gateway: Gateway, user: String, query: String = "") async throws -> TestSocket {
        let socket = try await Self.open(gateway, user: user, query: query)
        try await eventually("the count comes") { !socket.messages.arguments("UnreadCountChanged").isEmpty }
        return socket
    }

    /// The messages in a sequence of records.
    static func messages(_ bytes: some Sequence<UInt8>) -> [JSONValue] {
        Array(bytes).split(separator: 0x1E).compactMap { try? JSONParser.parse(Array($0)) }
    }
}

extension [JSONValue] {
    /// The first argument of each invocation of a client method, in order.
    func arguments(_ target: String) -> [JSONValue] {
        self.filter { $0["type"]?.integer == 1 && $0["target"]?.string == target }
            .compactMap { $0["arguments"]?.array?.first }
    }

    /// The titles of the received notifications.
    var receivedTitles: [String] { self.arguments("ReceiveNotification").compactMap { $0["title"]?.string } }

    /// The received unread counts.
    var counts: [Int64] { self.arguments("UnreadCountChanged").compactMap(\.integer) }

    /// The completion of an invocation.
    func completion(_ id: String) -> JSONValue? {
        self.first { $0["type"]?.integer == 3 && $0["invocationId"]?.string == id }
    }

    /// The Close message.
    var close: JSONValue? { self.first { $0["type"]?.integer == 7 } }
}
