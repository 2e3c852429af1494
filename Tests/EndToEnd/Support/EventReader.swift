// Carillon · EventReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

extension Stack {
    /// All entries of the events stream, in order, as their non-empty fields.
    func events() async throws -> [[String: String]] {
        let reply = try await self.connection.send("XRANGE", "carillon:events", "-", "+")
        guard var cursor = try reply.cursor(), let count = try cursor.array() else { return [] }
        var events: [[String: String]] = []
        for _ in 0..<count {
            _ = try cursor.array()
            var event = ["id": try cursor.string() ?? ""]
            for _ in 0..<(try cursor.array() ?? 0) / 2 {
                let name = try cursor.string() ?? ""
                let value = try cursor.string() ?? ""
                if !value.isEmpty { event[name] = value }
            }
            events.append(event)
        }
        return events
    }

    /// The kinds of a user's events, in order.
    func kinds(user: String) async throws -> [String] {
        try await self.events().filter { $0["user"] == user }.compactMap { $0["event"] }
    }
}
