// Carillon · DueStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

/// The moments at which work in PostgreSQL is due.
@Suite(.timeLimit(.minutes(10)))
struct DueStoreTests {
    @Test("returns the first moment of each kind of work, and nil for none")
    func next() async throws {
        try await TestDatabase.with { database in
            let store = Database(database.pool).due
            #expect(
                try await store.next()
                    == .init(
                        schedules: [nil, nil, nil], followUp: nil, digest: nil, replay: nil, hasBroadcast: false))
            let first = Timestamp(seconds: 1_795_000_000)
            for (entry, moment) in [("1-0", first + .seconds(1)), ("2-0", first)] {
                try await database.pool.query(
                    """
                    INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at, replay_at)
                    VALUES ('s', $1, 'r', '[]', now(), $2)
                    """,
                    .text(entry), .timestamptz(moment.microseconds))
            }
            for (number, moment) in [first + .seconds(2), first + .seconds(3)].enumerated() {
                try await database.pool.query(
                    """
                    INSERT INTO carillon.digests (id, user_id, org_id, type, key, lane, due_at, last_at)
                    VALUES (gen_random_uuid(), 'ada', '', 'news', $1, 'normal', $2, $2)
                    """,
                    .text("\(number)"), .timestamptz(moment.microseconds))
            }
            #expect(
                try await store.next()
                    == .init(
                        schedules: [nil, nil, nil], followUp: nil, digest: first + .seconds(2), replay: first,
                        hasBroadcast: false))
        }
    }

    @Test("ignores failed schedules and paused broadcasts, and takes the first schedule of each lane")
    func states() async throws {
        try await TestDatabase.with { database in
            let store = Database(database.pool).due
            let first = Timestamp(seconds: 1_795_000_000)
            try await database.pool.query(
                """
                INSERT INTO carillon.schedules (id, org_id, part, source, lane, fields, content, due_at, wake_at, state,
                    created_at)
                SELECT gen_random_uuid(), '', '', 'api', 0, '[]', 1, $1::timestamptz - interval '1 hour', NULL, 'failed',
                    now()
                """,
                .timestamptz(first.microseconds))
            try await database.pool.query(
                """
                INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, lane, urgency, state,
                    created_at)
                VALUES (gen_random_uuid(), '', 'j', '1-0', 's', '[]', 'bulk', 2, 'paused', now())
                """)
            let none = DueStore.Moments(
                schedules: [nil, nil, nil], followUp: nil, digest: nil, replay: nil, hasBroadcast: false)
            #expect(try await store.next() == none)
            // The last lane has no schedule.
            for (place, lane) in [Lane.normal, .critical, .normal].enumerated() {
                try await database.pool.query(
                    """
                    INSERT INTO carillon.schedules (id, org_id, part, source, lane, fields, content, due_at, wake_at,
                        created_at)
                    SELECT gen_random_uuid(), '', '', 'api', $1::int4, '[]', 1, $2::timestamptz, $2, now()
                    """,
                    .int4(Int32(lane.rank)), .timestamptz((first + .seconds(place)).microseconds))
            }
            try await database.pool.query("UPDATE carillon.broadcasts SET state = 'expanding'")
            #expect(
                try await store.next()
                    == .init(
                        schedules: [first + .seconds(1), first, nil], followUp: nil, digest: nil, replay: nil,
                        hasBroadcast: true))
            // A page of a broadcast may be the first, or the only one.
            for lane in [Lane.critical, .bulk] {
                try await database.pool.query(
                    """
                    INSERT INTO carillon.schedules (id, org_id, part, source, lane, fields, content, due_at, wake_at,
                        created_at)
                    SELECT gen_random_uuid(), '', 'UTC 0/0 hash', 'jobs/1-0', $1::int4, '[]', 1, $2::timestamptz, $2,
                        now()
                    """,
                    .int4(Int32(lane.rank)), .timestamptz(first.microseconds))
            }
            let moments = try await store.next().schedules
            #expect(moments == [first, first, first])
        }
    }
}
