// Carillon · CompatibilityStack.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support

extension Stack {
    func startCompatible(environment: [String: String] = [:]) async throws -> Gateway {
        let gateway = try await self.startGateway(environment: environment)
        _ = try await self.startDispatcher()
        return gateway
    }
}

/// A user's client of the compatibility API.
struct CompatibilityClient {
    let gateway: Gateway
    let token: String

    init(_ gateway: Gateway, user: String) async throws {
        self.gateway = gateway
        self.token = try await Stack.token(user: user)
    }

    func get(_ path: String) async throws -> Gateway.Answer {
        try await self.gateway.call(.get, path, token: self.token)
    }

    func send(_ method: TransferRequest.Method, _ path: String, _ json: String? = nil) async throws -> Gateway.Answer {
        try await self.gateway.call(method, path, token: self.token, json: json)
    }

    /// Waits until the inbox at `path` counts `count` notifications.
    func waitForCount(_ count: Int, at path: String = "/v1/notifications/unread-count") async throws {
        try await eventually("\(count) notifications") {
            try await self.get(path).body["total"]?.integer == Int64(count)
        }
    }
}

extension JSONValue {
    /// The texts of a member in an array of objects.
    func texts(_ name: String) -> [String] {
        self.array?.compactMap { $0[name]?.string } ?? []
    }
}
