// Carillon · Broadcasts.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support

/// Calls of a gateway for tests of broadcasts.
enum Broadcasts {
    static func post(_ gateway: Gateway, _ json: String) async throws -> Gateway.Answer {
        try await gateway.call(.post, "/v1/jobs", token: try await Self.service(), json: json)
    }

    static func service() async throws -> String { try await Stack.token(user: "backend", scope: .service) }

    static func report(_ gateway: Gateway, _ id: String) async throws -> JSONValue {
        try await gateway.call(.get, "/v1/jobs/\(id)", token: try await Self.service()).body
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
