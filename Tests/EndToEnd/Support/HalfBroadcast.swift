// Carillon · HalfBroadcast.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// Broadcasts that stand still half-way.
extension Stack {
    /// What a dispatcher is told that holds broadcasts back as soon as anything waits.
    static let holdingBroadcasts = ["BROADCAST_HIGH_WATER": "1"]

    /// Starts a broadcast of lane bulk of which half the chains seem to be somebody else's, and waits until the other half is
    /// done.
    ///
    /// - Parameter members: the job's, besides its id.
    func expandHalf(_ id: String, _ gateway: Gateway, _ members: String) async throws {
        let stream = "carillon:{fcm}:deliveries:bulk"
        // Work of a newer program stays in the stream, and holds the broadcast back.
        let work = try await self.connection.send("XADD", .text(stream), "*", "d", "99 from the future").string() ?? ""
        let service = try await Stack.token(user: "backend", scope: .service)
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

    /// Lets dispatchers have the chains below a number that seemed to be somebody else's.
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
