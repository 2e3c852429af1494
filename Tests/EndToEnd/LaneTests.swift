// Carillon · LaneTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import Model
import Postgres
import ProviderSandbox
import Redis
import Streams
import Testing

/// The urgent goes first, all the way to the provider.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct LaneTests {
    private static let backlog = 3_000
    private static let catalog = """
        types:
          mass: {severity: info, delivery: push, lane: bulk}
          alarm: {severity: alert, delivery: push, lane: critical}
        """

    @Test("an alert that comes behind thousands of bulk pushes to a slow provider is sent before most of them")
    func alert() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            _ = try await stack.startDispatcher(environment: environment)
            try await gateway.register(user: "urgent", platform: "android", token: "urgent-phone")
            // The provider takes two seconds for each of these.
            try await stack.query(
                """
                INSERT INTO carillon.devices (id, user_id, platform, provider, app, environment, token, registered_at,
                    last_used_at)
                SELECT gen_random_uuid(), 'b' || n, 'android', 'fcm', 'default', 'production', 'slow-' || n, now(), now()
                FROM generate_series(1, $1::int4) n
                """,
                .int4(Int32(Self.backlog))
            )
            for start in stride(from: 1, to: Self.backlog, by: 1_000) {
                let users = (start..<start + 1_000).map { #""b\#($0)""# }.joined(separator: ",")
                try await stack.append(
                    [("users", "[\(users)]"), ("type", "mass"), ("title", "mass")], stream: "carillon:jobs:bulk")
            }
            try await eventually("all of them wait") {
                let rows = try await stack.query(
                    "SELECT 1 FROM carillon.notifications WHERE type = 'mass' AND status_reason = 'queued' LIMIT 3000")
                return rows.count + stack.sandbox.received().count >= Self.backlog
            }
            #expect(stack.sandbox.received().count < Self.backlog / 2, "the provider was not slow")
            try await stack.append(
                [("user", "urgent"), ("type", "alarm"), ("title", "fire")], stream: "carillon:jobs:critical")
            try await eventually("the alert is sent") { stack.pushed()["urgent-phone"] == ["fire"] }
            let order = stack.sandbox.received().map(\.token)
            let place = try #require(order.firstIndex(of: "urgent-phone"))
            #expect(place < Self.backlog * 2 / 3, "\(place) were sent before it")
        }
    }
    @Test("what is critical goes out while a provider that does not answer holds all the calls that bulk may have")
    func hanging() async throws {
        try await Stack.with { stack in
            let catalog = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: catalog)
            _ = try await stack.startDispatcher(
                environment: catalog.merging(["PROVIDER_CALLS": "8"]) { $1 })
            try await gateway.register(user: "urgent", platform: "android", token: "urgent-phone")
            for number in 1...12 {
                try await gateway.register(user: "b\(number)", platform: "android", token: "silent-\(number)")
                try await stack.append(
                    [("user", "b\(number)"), ("type", "mass"), ("title", "mass")], stream: "carillon:jobs:bulk")
            }
            // Each of these calls is given up after 30 seconds.
            let board = ProviderBoard(connection: stack.connection, keys: Keyspace())
            try await eventually("bulk has all that it may have") {
                try await board.states(now: Timestamp(seconds: 0)).contains { $0.provider == .fcm && $0.inFlight == 6 }
            }
            try await stack.append(
                [("user", "urgent"), ("type", "alarm"), ("title", "fire")], stream: "carillon:jobs:critical")
            try await eventually("the alert is sent") { stack.pushed()["urgent-phone"] == ["fire"] }
            let others = try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome <> 'accepted'")
            #expect(others.isEmpty)
        }
    }
}
