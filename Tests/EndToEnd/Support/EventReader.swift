// Carillon · EventReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

extension Stack {
    /// The events that upstream apps are told, in order, each by its fields; what does not apply is left out.
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

    /// The events of a user, by kind.
    func kinds(user: String) async throws -> [String] {
        try await self.events().filter { $0["user"] == user }.compactMap { $0["event"] }
    }
}
