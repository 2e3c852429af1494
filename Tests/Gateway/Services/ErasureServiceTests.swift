// Carillon · ErasureServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import HTTP
@testable import Storage

@Suite("Erasing a user", .timeLimit(.minutes(10)))
struct ErasureServiceTests {
    @Test("takes the user out of a broadcast that a schedule stores while schedules are searched")
    func fired() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let base = try GatewayBase.forTests(database.pool, redis, Keyspace(prefix: prefix))
                let revocations = RevocationRegister(
                    store: base.database.revocations, live: base.live, logger: TestLog.logger)
                let erasure = ErasureService(base, users: base.database.users, revocations: revocations)
                let id = NotificationID(high: 1, low: 1)
                let schedule = Schedule(
                    id: id, fields: [("topic", Array("t".utf8)), ("except", Array(#"["ada","bob"]"#.utf8))],
                    dueAt: Tokens.now, createdAt: Tokens.now)
                _ = try await base.database.schedules.add([schedule])
                let broadcast = Broadcast(
                    id: id, org: "", jobID: nil, entry: "jobs/1-0", stream: "jobs",
                    fields: [("type", Array("news".utf8)[...])], topic: "t", lane: .bulk, createdAt: Tokens.now)
                #expect(try await base.database.broadcasts.add([broadcast]) == [.stored])
                // As if the schedule had fired before its change.
                try await database.pool.query(
                    #"""
                    CREATE FUNCTION carillon.fire() RETURNS trigger LANGUAGE plpgsql AS $$
                    BEGIN
                        UPDATE carillon.broadcasts
                        SET fields = '[["type", "news"], ["except", "[\"ada\",\"bob\"]"]]';
                        RETURN NULL;
                    END $$
                    """#
                )
                try await database.pool.query(
                    """
                    CREATE TRIGGER fire AFTER UPDATE ON carillon.schedules
                    FOR EACH ROW EXECUTE FUNCTION carillon.fire()
                    """
                )
                _ = try await erasure.erase(user: "ada", caps: [])
                let fields = try await base.database.broadcasts.list(before: nil, state: nil, limit: 1)
                    .first?.broadcast.fields
                let except = try #require(fields?.first { $0.name == "except" })
                #expect(String(decoding: except.value, as: UTF8.self) == #"["bob"]"#)
            }
        }
    }
}
