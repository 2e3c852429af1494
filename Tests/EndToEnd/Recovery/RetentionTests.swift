// Carillon · RetentionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Pipeline

/// Retention: old data is removed, clients get the deletions, and counts stay right.
@Suite(.timeLimit(.minutes(10)))
struct RetentionTests {
    @Test("expired notifications become tombstones with a version, then disappear, and counts stay exact")
    func inboxes() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let first = try await stack.startDispatcher(name: "dispatcher-0")
            for title in ["old", "older, read", "kept until", "new"] {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
            }
            try await stack.append([
                ("user", "ada"), ("type", "payment_received"), ("title", "push only"), ("channels", #"["push"]"#),
            ])
            try await eventually("all are stored") { try await stack.statuses(user: "ada").count == 5 }
            _ = try await first.stop()
            _ = try await stack.query(
                """
                UPDATE carillon.notifications SET stored_at = now() - interval '91 days'
                WHERE title IN ('old', 'older, read', 'push only')
                """)
            _ = try await stack.query(
                "UPDATE carillon.notifications SET keep_until = now() - interval '1 minute' WHERE title = 'kept until'")
            // The first dispatcher noted that nothing was this old.
            _ = try await stack.query("UPDATE carillon.sweep SET retained_from = '-infinity'")
            let token = Stack.token(user: "ada")
            let read = try await stack.query("SELECT id::text FROM carillon.notifications WHERE title = 'older, read'")
            let readID = try #require(try read.first?.text(0))
            #expect(try await gateway.call(.post, "/v1/notifications/\(readID)/read", token: token).status == 200)
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let before = try await gateway.call(.get, "/v1/notifications", token: token).body
            #expect(before["total"]?.integer == 4)
            #expect(before["unread"]?.integer == 3)

            try await stack.connection.send("DEL", "carillon:retention")
            let second = try await stack.startDispatcher(name: "dispatcher-1")
            try await eventually("the socket gets the deletions") {
                socket.all("deleted").flatMap { $0["change"]?["ids"]?.array ?? [] }.count == 3
            }
            let after = try await gateway.call(.get, "/v1/notifications", token: token).body
            #expect(after["notifications"]?.array?.compactMap { $0["title"]?.string } == ["new"])
            #expect(after["total"]?.integer == 1)
            #expect(after["unread"]?.integer == 1)
            #expect(try await stack.statuses(user: "ada")["push only"] == nil)
            // A client that was away gets the deletions too.
            let version = try #require(before["version"]?.integer)
            let changes = try await gateway.call(.get, "/v1/notifications?since_version=\(version)", token: token).body
            #expect(changes["deleted"]?.array?.count == 3)
            #expect(changes["reset"] == .bool(false))
            _ = try await second.stop()

            // Old tombstones disappear, and a client behind them gets a reset.
            _ = try await stack.query(
                "UPDATE carillon.notifications SET deleted_at = now() - interval '31 days' WHERE deleted_at IS NOT NULL"
            )
            try await stack.connection.send("DEL", "carillon:retention")
            _ = try await stack.startDispatcher(name: "dispatcher-2")
            try await eventually("they are gone for good") {
                try await stack.statuses(user: "ada") == ["new": "sent"]
            }
            let late = try await gateway.call(.get, "/v1/notifications?since_version=\(version)", token: token).body
            #expect(late["reset"] == .bool(true))
            let now = try await gateway.call(.get, "/v1/notifications/unread-count", token: token).body
            #expect(now["unread"]?.integer == 1)
        }
    }

    @Test("one turn goes on until all expired data is gone, however much it is")
    func backlog() async throws {
        try await Stack.with { stack in
            // One more than the steps of a kind remove before the others get their turn.
            let cancellations = RetentionService.mostSteps * RetentionService.batchSize + 1
            _ = try await stack.query(
                """
                INSERT INTO carillon.cancellations (org_id, job_id, at)
                SELECT 'org', 'job ' || n, now() - interval '38 days' FROM generate_series(1, \(cancellations)) AS n
                """)
            // One more than a step removes.
            let letters = RetentionService.deadLetterBatchSize + 1
            _ = try await stack.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                SELECT 's', n::text, 'old', '[]', now() - interval '31 days' FROM generate_series(1, \(letters)) AS n
                """)
            _ = try await stack.startDispatcher()
            // A key that does not expire leaves this turn the only one.
            try await eventually("the first turn has begun") {
                try await stack.connection.send("PERSIST", "carillon:retention").integer() == 1
            }
            try await eventually("nothing is left") {
                let left = try await stack.query(
                    """
                    SELECT (SELECT count(*) FROM carillon.cancellations)
                        + (SELECT count(*) FROM carillon.dead_letters)
                    """)
                return try left.first?.int8(0) == 0
            }
        }
    }

    @Test("old attempts are removed, with the partition of their day or alone")
    func attempts() async throws {
        try await Stack.with { stack in
            for day in ["20200101", "20200102"] {
                _ = try await stack.query(
                    """
                    CREATE TABLE carillon.delivery_attempts_\(day) PARTITION OF carillon.delivery_attempts
                    FOR VALUES FROM ('\(day)') TO ('\(day)'::date + 1)
                    """)
            }
            _ = try await stack.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome) VALUES
                    ('2020-01-01 12:00Z', 'a', 'fcm', 'push', 1, 'accepted'),
                    ('2019-01-01 12:00Z', 'a', 'fcm', 'push', 1, 'accepted'), (now(), 'a', 'fcm', 'push', 1, 'accepted')
                """)
            _ = try await stack.startDispatcher()
            try await eventually("the new attempt is left") {
                let left = try await stack.query("SELECT count(*) FROM carillon.delivery_attempts WHERE user_id = 'a'")
                return try left.first?.int8(0) == 1
            }
            try await eventually("the partitions of today and the next seven days are left") {
                let days = try await stack.query(
                    """
                    SELECT count(*), bool_or(relname LIKE '%_2020010_') FROM pg_class
                    WHERE relname ~ '^delivery_attempts_[0-9]{8}$' AND relkind = 'r'
                    """)
                return try days.first?.int8(0) == 8 && days.first?.bool(1) == false
            }
        }
    }

    @Test("a device that was not used for 90 days is switched off, and the audit records it")
    func staleDevices() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let stale = try await gateway.register(user: "ada", platform: "android", token: "stale")
            try await gateway.register(user: "bob", platform: "android", token: "fresh")
            _ = try await stack.query(
                "UPDATE carillon.devices SET last_used_at = now() - interval '91 days' WHERE token = 'stale'")
            _ = try await stack.startDispatcher()
            try await eventually("the stale device is off, and the audit says so") {
                let rows = try await stack.query(
                    """
                    SELECT d.id::text, d.deactivated_reason, a.kind, a.reason FROM carillon.devices d
                    LEFT JOIN carillon.delivery_attempts a ON a.device_id = d.id AND a.outcome = 'skipped'
                    WHERE NOT d.active
                    """)
                guard rows.count == 1, let row = rows.first else { return false }
                return try [row.text(0), row.text(1), row.text(2), row.text(3)] == [stale, "stale", "token", "stale"]
            }
        }
    }

    @Test("a device is deleted 30 days after it was deactivated, unless it is registered again before")
    func deactivatedDevices() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            for (token, days) in [("gone", 31), ("off", 29)] {
                try await gateway.register(user: "eve", platform: "android", token: token, name: token)
                _ = try await stack.query("UPDATE carillon.devices SET active = false WHERE token = '\(token)'")
                _ = try await stack.query(
                    """
                    UPDATE carillon.devices SET inactive_since = now() - interval '\(days) days'
                    WHERE token = '\(token)' AND inactive_since IS NOT NULL
                    """)
            }
            _ = try await stack.startDispatcher()
            try await eventually("the device deactivated long ago is gone") {
                let rows = try await stack.query("SELECT token FROM carillon.devices")
                return try rows.map { try $0.text(0) } == ["off"]
            }
            try await gateway.register(user: "eve", platform: "android", token: "off", name: "off")
            let again = try await stack.query(
                "SELECT active AND inactive_since IS NULL FROM carillon.devices WHERE token = 'off'")
            #expect(try again.first?.bool(0) == true)
        }
    }
}
