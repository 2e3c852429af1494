// Carillon · PresenceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Presence of users and the state of their connections.
@Suite(.timeLimit(.minutes(10)))
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
            try await eventually("the closed connection is gone") { try await Self.states(stack, "u") == ["active"] }

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
        try await Stack.with(settings: Stack.shortLease) { stack in
            let doomed = try await stack.startGateway(name: "doomed")
            let other = try await stack.startGateway(name: "other")
            _ = try await TestSocket.synced(port: doomed.port, user: "gone")
            _ = try await TestSocket.synced(port: other.port, user: "here")
            let token = Stack.token(user: "app", scope: .admin)
            func isOnline(_ user: String) async throws -> Bool? {
                try await other.call(.get, "/v1/admin/presence/\(user)", token: token).body["online"]?.bool
            }
            try await eventually("both are online") {
                let (gone, here) = try await (isOnline("gone"), isOnline("here"))
                return gone == true && here == true
            }
            doomed.process.send(SIGKILL)
            try await eventually("it is offline") { try await isOnline("gone") == false }
            // On a machine that stalls for longer than a lease, it may be registered again first.
            try await eventually("the other is online") { try await isOnline("here") == true }
        }
    }
}

/// Presence in the admin API.
@Suite(.timeLimit(.minutes(10)))
struct PresenceRestTests {
    @Test("presence shows open connections, and when an offline user was last seen")
    func presence() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let admin = Stack.token(user: "root", scope: .admin)
            let service = Stack.token(user: "backend", scope: .service)
            let path = "/v1/admin/presence/ada"
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: "{}").status == 200)
            #expect(try await gateway.call(.get, path, token: service).status == 403)
            let unknown = try await gateway.call(.get, path, token: admin)
            #expect(unknown.status == 200)
            #expect(unknown.body["online"] == .bool(false))
            #expect(unknown.body["last_seen"] == .null)

            let first = try await TestSocket.synced(port: gateway.port, user: "ada")
            let second = try await TestSocket.synced(port: gateway.port, user: "ada")
            let online = try await gateway.call(.get, path, token: admin)
            #expect(online.body["online"] == .bool(true))
            let connections = online.body["connections"]?.array ?? []
            #expect(connections.count == 2)
            #expect(connections.first?["dialect"]?.string == "native")
            #expect(connections.first?["state"]?.string == "active")
            #expect(connections.first?["since"]?.string.flatMap { Timestamp(rfc3339: $0) } != nil)

            await first.close()
            try await eventually("one is left") {
                try await gateway.call(.get, path, token: admin).body["connections"]?.array?.count == 1
            }
            #expect(try await gateway.call(.get, path, token: admin).body["last_seen"] == .null)
            await second.close()
            try await eventually("the last-seen time is stored") {
                try await gateway.call(.get, path, token: admin).body["last_seen"]?.string != nil
            }
            #expect(try await gateway.call(.get, path, token: admin).body["online"] == .bool(false))

            _ = try await TestSocket.synced(port: gateway.port, user: "eve")
            let many = try await gateway.call(
                .post, "/v1/admin/presence", token: admin, json: #"{"users":["eve","ada","nobody"]}"#)
            let users = many.body["users"]?.array ?? []
            #expect(users.map { $0["user_id"]?.string } == ["eve", "ada", "nobody"])
            #expect(users.map { $0["online"]?.bool } == [true, false, false])
            #expect(users.map { $0["last_seen"]?.string != nil } == [false, true, false])
        }
    }

    @Test("a last-seen time that cannot be stored keeps no user online and is counted")
    func unseen() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let admin = Stack.token(user: "root", scope: .admin)
            let path = "/v1/admin/presence/ada"
            func counted() async throws -> Double {
                let page = try await gateway.call(.get, "/metrics", token: nil).response.body
                return try MetricsText(String(decoding: page, as: UTF8.self)).samples["carillon_presence_unseen"] ?? 0
            }
            #expect(try await counted() == 0)
            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: "{}").status == 200)
            // PostgreSQL refuses the last-seen time and nothing else.
            try await stack.query("ALTER TABLE carillon.users ADD CONSTRAINT refused CHECK (last_seen IS NULL)")
            let first = try await TestSocket.synced(port: gateway.port, user: "ada")
            await first.close()
            try await eventually("it is counted") { try await counted() == 1 }
            let gone = try await gateway.call(.get, path, token: admin)
            #expect(gone.body["online"] == .bool(false))
            #expect(gone.body["last_seen"] == .null)

            try await stack.query("ALTER TABLE carillon.users DROP CONSTRAINT refused")
            let second = try await TestSocket.synced(port: gateway.port, user: "ada")
            await second.close()
            try await eventually("the next departure is stored") {
                try await gateway.call(.get, path, token: admin).body["last_seen"]?.string != nil
            }
            #expect(try await counted() == 1)
        }
    }

    @Test("refuses a users field that is too long or not a list")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let admin = Stack.token(user: "root", scope: .admin)
            let many = (0...1_000).map { "\"u\($0)\"" }.joined(separator: ",")
            let bodies = [
                (#"{}"#, "users"), (#"{"users":[]}"#, "users"), (#"{"users":"ada"}"#, "users"),
                (#"{"users":["a",5]}"#, "users[1]"), ("{\"users\":[\(many)]}", "users"),
            ]
            for (body, field) in bodies {
                let answer = try await gateway.call(.post, "/v1/admin/presence", token: admin, json: body)
                #expect(answer.status == 422)
                #expect(answer.faults == [field])
            }
        }
    }
}
