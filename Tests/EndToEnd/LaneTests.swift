// Carillon · LaneTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import Postgres
import ProviderSandbox
import Redis
import Testing

/// The urgent goes first, all the way to the provider.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct LaneTests {
    private static let backlog = 3_000

    @Test("an alert that comes behind thousands of bulk pushes to a slow provider is sent before most of them")
    func alert() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  mass: {severity: info, delivery: push, lane: bulk}
                  alarm: {severity: alert, delivery: push, lane: critical}
                """
            )
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
}
