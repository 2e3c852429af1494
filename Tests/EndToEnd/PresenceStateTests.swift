// Carillon · PresenceStateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// Presence of users and the state of their connections.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct PresenceStateTests {
    /// The states of a user's connections in Redis.
    private static func states(_ stack: Stack, _ user: String) async throws -> [String] {
        let reply = try await stack.connection.send("HVALS", .text("carillon:presence:{\(user)}"))
        guard var cursor = try reply.cursor(), let count = try cursor.array() else { return [] }
        var states: [String] = []
        for _ in 0..<count {
            let parts = (try cursor.string() ?? "").split(separator: " ")
            if parts.count >= 5 { states.append(String(parts[3])) }
        }
        return states.sorted()
    }

    @Test("a connection is idle while its client says so, and active if it never says")
    func focus() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let silent = try await TestSocket.synced(port: gateway.port, user: "u")
            let speaking = try await TestSocket.synced(port: gateway.port, user: "u")
            #expect(try await Self.states(stack, "u") == ["active", "active"])
            try await speaking.send(json: #"{"type":"focus","active":false,"ref":1}"#)
            _ = try await speaking.first("done")
            try await eventually("one is idle") { try await Self.states(stack, "u") == ["active", "idle"] }
            try await speaking.send(json: #"{"type":"focus","active":true}"#)
            try await eventually("it is back") { try await Self.states(stack, "u") == ["active", "active"] }
            try await speaking.send(json: #"{"type":"focus","active":false}"#)
            await speaking.close()
            try await eventually("who has left stays away") { try await Self.states(stack, "u") == ["active"] }

            // After Redis lost everything, the gateway registers the connection again with its
            // state.
            try await silent.send(json: #"{"type":"focus","active":false}"#)
            try await eventually("it is idle") { try await Self.states(stack, "u") == ["idle"] }
            _ = try await stack.connection.send("FLUSHALL")
            try await eventually("it is registered again, and idle") {
                try await Self.states(stack, "u") == ["idle"]
            }
        }
    }

    @Test("users of a killed gateway are offline once its lease expires")
    func crash() async throws {
        try await Stack.with { stack in
            let doomed = try await stack.startGateway(name: "doomed")
            let other = try await stack.startGateway(name: "other")
            _ = try await TestSocket.synced(port: doomed.port, user: "gone")
            _ = try await TestSocket.synced(port: other.port, user: "here")
            let token = try await Stack.token(user: "app", scope: .admin)
            func isOnline(_ user: String) async throws -> Bool? {
                try await other.call(.get, "/v1/admin/presence/\(user)", token: token).body["online"]?.bool
            }
            #expect(try await isOnline("gone") == true)
            doomed.process.send(SIGKILL)
            // A lease lasts 15 s.
            try await eventually("it is offline", within: .seconds(60)) { try await isOnline("gone") == false }
            #expect(try await isOnline("here") == true)
        }
    }
}
