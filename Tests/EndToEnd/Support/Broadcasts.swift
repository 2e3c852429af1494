// Carillon · Broadcasts.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import HTTP

/// Calls of a gateway for tests of broadcasts.
enum Broadcasts {
    static func post(_ gateway: Gateway, _ json: String) async throws -> Gateway.Answer {
        try await gateway.call(.post, "/v1/jobs", token: Self.service(), json: json)
    }

    static func service() -> String { Stack.token(user: "backend", scope: .service) }

    static func report(_ gateway: Gateway, _ id: String) async throws -> JSONValue {
        try await gateway.call(.get, "/v1/jobs/\(id)", token: Self.service()).body
    }

    static func waitFor(_ state: String, _ gateway: Gateway, _ id: String) async throws -> JSONValue {
        try await eventualValue("\(id) is \(state)") {
            let report = try await Self.report(gateway, id)
            return report["broadcast"]?["state"]?.string == state ? report : nil
        }
    }

    static func number(_ stack: Stack, _ sql: String) async throws -> Int64 {
        try await stack.query(sql).first?.int8(0) ?? -1
    }
}

/// Broadcasts that stop half-way.
extension Stack {
    /// Makes a dispatcher hold broadcasts back as soon as one delivery waits.
    static let holdingBroadcasts = ["BROADCAST_HIGH_WATER": "1"]

    /// Starts a bulk broadcast and waits until 8 of its 16 chains are done; a lease of another
    /// dispatcher holds the rest.
    ///
    /// - Parameter members: members of the job besides its id.
    func expandHalf(_ id: String, _ gateway: Gateway, _ members: String) async throws {
        let stream = "carillon:{fcm}:deliveries:bulk"
        // The dispatcher leaves a delivery of an unknown version in the stream; it holds the
        // broadcast back.
        let work = try await self.connection.send("XADD", .text(stream), "*", "d", "99 from the future").string() ?? ""
        let service = Stack.token(user: "backend", scope: .service)
        let answer = try await gateway.call(
            .post, "/v1/jobs", token: service, json: #"{"id":"\#(id)",\#(members)}"#)
        #expect(answer.status == 202)
        func broadcast() async throws -> JSONValue? {
            try await gateway.call(.get, "/v1/jobs/\(id)", token: service).body["broadcast"]
        }
        try await eventually("it is held back") { try await broadcast()?["held"]?.bool == true }
        try await self.query(
            """
            UPDATE carillon.broadcast_chains SET claimed_by = 'ghost', claimed_until = now() + interval '1 hour'
            WHERE part >= 8
            """
        )
        try await self.connection.send("XDEL", .text(stream), .text(work))
        try await eventually("half of it is expanded") { try await broadcast()?["chains_done"]?.integer == 8 }
    }

    /// Releases the held chains below `part`.
    func freeChains(below part: Int32) async throws {
        try await self.query(
            """
            UPDATE carillon.broadcast_chains SET claimed_by = NULL, claimed_until = NULL
            WHERE part < $1 AND claimed_by = 'ghost'
            """,
            .int4(part)
        )
    }
}
