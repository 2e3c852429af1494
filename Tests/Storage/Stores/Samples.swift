// Carillon · Samples.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Support

@testable import Clients

/// Sample notifications and devices.
enum Samples {
    static let start = Timestamp(seconds: 1_795_000_000)

    /// A notification whose id follows from `number`.
    static func notification(
        _ number: Int,
        user: String,
        job: String? = nil,
        change: (inout Notification) -> Void = { _ in }
    ) -> Notification {
        let digest = EntryDigest(stream: "jobs", entry: "\(1_795_000_000_000 + number)-0", fields: [])
        var notification = Notification(
            id: NotificationID(origin: digest, user: user),
            user: user,
            type: "invoice_created",
            createdAt: Timestamp(milliseconds: 1_795_000_000_000 + Int64(number))
        )
        notification.jobEntry = "jobs/\(number)"
        notification.jobID = job
        notification.title = "n\(number)"
        notification.channels = [.inApp]
        change(&notification)
        return notification
    }

    static func device(user: String, token: String, name: String? = nil, at second: Int64 = 0) -> Device {
        var device = Device(
            id: NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID,
            user: user,
            platform: .android,
            provider: .fcm,
            app: "default",
            environment: .production,
            token: token,
            registeredAt: Samples.start + .seconds(second)
        )
        device.name = name
        return device
    }

    /// Runs `body` with a fresh database whose sessions are configured as in the services.
    static func withStores(_ body: (Database) async throws -> Void) async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.settings }) { database in
            try await body(Database(database.pool))
        }
    }

    /// The same with the stores of a second pool, whose calls may wait for locks: they keep no call
    /// of the first pool waiting.
    static func withStoresOfTwoPools(_ body: (Database, Database) async throws -> Void) async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.settings }) { database in
            var configuration = database.configuration()
            configuration.sessionSettings = StoreSession.settings
            let second = try PostgresPool(configuration, logger: TestLog.logger)
            defer { second.close() }
            try await body(Database(database.pool), Database(second))
        }
    }

    /// The same with a connection for each call; a call that waits for a lock keeps no other
    /// waiting.
    static func withConcurrentStores(_ body: (Database) async throws -> Void) async throws {
        let configure = { (configuration: inout PostgresConfiguration) in
            configuration.sessionSettings = StoreSession.settings
            configuration.pipelineDepth = 1
        }
        try await TestDatabase.with(isMigrated: true, configure) { database in
            try await body(Database(database.pool))
        }
    }

    /// Returns the generic plan of a statement, as the services use it.
    ///
    /// A plain EXPLAIN would plan for the given parameters. Undoes the statement's changes.
    ///
    /// - Parameters:
    ///   - types: the types of the parameters.
    ///   - values: their values as SQL.
    static func plan(
        of sql: String,
        _ types: String,
        _ values: String,
        explain: String = "EXPLAIN",
        _ database: Database
    ) async throws -> String {
        try await database.pool.transaction { transaction in
            try await transaction.query("PREPARE planned (\(types)) AS " + sql)
            try await transaction.query("SAVEPOINT unchanged")
            let plan = try await transaction.query("\(explain) EXECUTE planned (\(values))")
            try await transaction.query("ROLLBACK TO unchanged")
            try await transaction.query("DEALLOCATE planned")
            return try plan.map { try $0.text(0) }.joined(separator: "\n")
        }
    }

    /// Lets each statement that inserts into a table, or also one that updates it, wait at its end
    /// for the advisory lock 1.
    static func holdInserts(into table: String, orUpdates: Bool = false, _ database: Database) async throws {
        try await database.pool.query(
            """
            CREATE FUNCTION carillon.hold() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM pg_advisory_xact_lock_shared(1);
                RETURN NULL;
            END $$
            """)
        try await database.pool.query(
            """
            CREATE TRIGGER hold AFTER INSERT\(orUpdates ? " OR UPDATE" : "") ON carillon.\(table)
            FOR EACH ROW EXECUTE FUNCTION carillon.hold()
            """)
    }

    /// Whether this number of the database's sessions wait for a lock.
    static func areWaiting(_ count: Int, _ database: Database) async throws -> Bool {
        try await database.pool.query(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).count == count
    }
}

extension InboxStore.Page {
    /// The titles of the notifications, in order.
    func titles() throws -> [String?] {
        try self.notifications.map { try JSONParser.parse(Samples.json(.title, of: $0)).string }
    }
}

extension Samples {
    /// A field as JSON.
    static func json<Fields: NotificationFields>(
        _ field: NotificationField,
        of notification: Fields
    ) throws(Fields.Failure) -> [UInt8] {
        var writer = JSONWriter()
        try notification.write(field, to: &writer)
        return writer.bytes
    }
}
