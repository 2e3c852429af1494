// Carillon · DeviceStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Users' devices; every change of a token is a row of the audit.
package struct DeviceStore: Sendable {
    /// The outcome of a registration.
    package struct Registration: Sendable {
        /// The device as it is stored, with the id that it keeps.
        package internal(set) var device: Device
        /// The user's other devices of the app that were switched off, as there were too many.
        package let switchedOff: [Device]
    }

    let pool: PostgresPool
    let limits: DeviceLimits

    /// Registers a device.
    ///
    /// A token that is known for the app is moved to this user; another device of the same user,
    /// app, platform and name is replaced. Past the app's limit, the user's devices of the app that
    /// were used the longest ago are switched off.
    ///
    /// - Parameter silenced: whether its user has switched it off; nil keeps what the user said
    ///   before.
    package func register(_ device: Device, silenced: Bool? = nil) async throws(PostgresError) -> Registration {
        let statements = Self.registration(
            of: device, limit: self.limits.limit(of: device.app), silenced: silenced)
        let results = try await self.pool.run(Self.lock(user: device.user) + statements)
        return try Self.registration(results[...])
    }

    /// Reads the results of ``registration(of:limit:silenced:)``, the last of `results`.
    static func registration(_ results: ArraySlice<PostgresResult>) throws(PostgresError) -> Registration {
        let own = results.suffix(Self.statementsOfRegistration)
        guard own.count == Self.statementsOfRegistration, let stored = own.dropFirst().first?.first, let last = own.last
        else { throw PostgresError(.decoding, "a registration gave no row") }
        var switchedOff: [Device] = []
        for row in last { switchedOff.append(try DeviceColumns.read(row)) }
        return Registration(device: try DeviceColumns.read(stored), switchedOff: switchedOff)
    }

    /// Makes the user known, and makes two registrations of one user take turns, so that the limit holds.
    static func lock(user: String) -> [PostgresStatement] {
        [
            PostgresStatement("INSERT INTO carillon.users (user_id) VALUES ($1) ON CONFLICT DO NOTHING", [.text(user)]),
            PostgresStatement("SELECT FROM carillon.users WHERE user_id = $1 FOR UPDATE", [.text(user)]),
        ]
    }

    static let statementsOfRegistration = 3

    /// Registers a device while its user is locked: removes what it replaces, stores it, and
    /// switches off what is too many.
    static func registration(of device: Device, limit: Int, silenced: Bool? = nil) -> [PostgresStatement] {
        [
            PostgresStatement(
                DeviceAudit.noting(
                    """
                    DELETE FROM carillon.devices
                    WHERE user_id = $1 AND app = $2 AND platform = $3 AND name = $4 AND (provider <> $5 OR token <> $6)
                    RETURNING id, user_id, provider
                    """,
                    at: "$7", .removed, .replaced),
                [
                    .text(device.user), .text(device.app), .text(device.platform.rawValue), .text(device.name),
                    .text(device.provider.rawValue), .text(device.token),
                    .timestamptz(device.registeredAt.microseconds),
                ]
            ),
            PostgresStatement(
                Self.upsert,
                [
                    .uuid(device.id.halves), .text(device.user), .text(device.platform.rawValue),
                    .text(device.provider.rawValue), .text(device.app), .text(device.environment.rawValue),
                    .text(device.token), .text(device.name), .text(device.deviceID), .text(device.appVersion),
                    .text(device.locale), .timestamptz(device.registeredAt.microseconds),
                    silenced.map { .bool($0) } ?? .null(.bool),
                ]
            ),
            PostgresStatement(
                Self.switchOff,
                [
                    .text(device.user), .int8(Int64(limit)), .timestamptz(device.registeredAt.microseconds),
                    .text(device.app),
                ]
            ),
        ]
    }

    /// Switches off what is too many.
    ///
    /// $1: user, $2: how many stay, $3: when, $4: app. Rows: the devices that were switched off.
    private static let switchOff = """
        WITH x AS (
            UPDATE carillon.devices d
            SET active = false, deactivated_reason = '\(DeviceAudit.Reason.tooManyDevices.rawValue)'
            WHERE d.id IN (
                SELECT id FROM carillon.devices WHERE user_id = $1 AND app = $4 AND active
                ORDER BY last_used_at DESC, id OFFSET $2
            )
            RETURNING \(DeviceColumns.list)
        ),
        told AS (
            \(DeviceAudit.insert)
            \(DeviceAudit.rows(from: "x", at: "$3", .deactivated, .tooManyDevices))
        )
        SELECT \(DeviceColumns.list) FROM x d
        """

    /// Why a token is registered, by the row `x` that is stored and what was there before, `o`.
    private static let reason = """
        CASE WHEN o.id IS NULL THEN '\(DeviceAudit.Reason.new.rawValue)'
            WHEN o.user_id <> x.user_id THEN '\(DeviceAudit.Reason.moved.rawValue)'
            ELSE '\(DeviceAudit.Reason.again.rawValue)' END
        """

    /// Stores a token, or moves it, and says so unless its user had it before and active.
    ///
    /// Whose it was is asked first, and held until the end: of two users who register it at once, the second takes it from
    /// the first.
    private static let upsert = """
        WITH old AS MATERIALIZED (
            SELECT o.id, o.user_id, o.provider, o.active FROM carillon.devices o
            WHERE o.app = $5 AND o.provider = $4 AND o.token = $7 FOR UPDATE
        ),
        stored AS (
            INSERT INTO carillon.devices AS d (id, user_id, platform, provider, app, environment, token, name, device_id,
                app_version, locale, registered_at, last_used_at, created_at, silenced)
            SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $12, coalesce($13, false) FROM (SELECT count(*) FROM old) asked
            ON CONFLICT (app, provider, token) DO UPDATE SET
                user_id = excluded.user_id, platform = excluded.platform, environment = excluded.environment,
                name = excluded.name, device_id = excluded.device_id, app_version = excluded.app_version,
                locale = excluded.locale, active = true, deactivated_reason = NULL,
                registered_at = excluded.registered_at, last_used_at = excluded.last_used_at,
                created_at = CASE WHEN d.user_id = excluded.user_id THEN coalesce(d.created_at, d.registered_at)
                    ELSE excluded.created_at END,
                silenced = CASE WHEN d.user_id = excluded.user_id THEN coalesce($13, d.silenced)
                    ELSE excluded.silenced END
            RETURNING \(DeviceColumns.list)
        ),
        told AS (
            \(DeviceAudit.insert)
            \(DeviceAudit.rows(from: "stored x LEFT JOIN old o ON true", at: "$12", .registered, reason: Self.reason))
            WHERE o.id IS NULL OR o.user_id <> x.user_id OR NOT o.active
            UNION ALL
            \(DeviceAudit.rows(from: "old x JOIN stored s ON s.user_id <> x.user_id", at: "$12", .removed, .moved))
        )
        SELECT \(DeviceColumns.list) FROM stored d
        """

    /// The user's devices, the latest used first.
    package func list(user: String) async throws(PostgresError) -> [Device] {
        let result = try await self.pool.query(
            """
            SELECT \(DeviceColumns.list) FROM carillon.devices d
            WHERE d.user_id = $1 ORDER BY d.last_used_at DESC, d.id LIMIT 100
            """,
            .text(user)
        )
        var devices: [Device] = []
        for row in result { devices.append(try DeviceColumns.read(row)) }
        return devices
    }

    /// Removes one device of the user; whether there was one.
    package func remove(user: String, id: NotificationID) async throws(PostgresError) -> Bool {
        try await self.pool.query(
            Self.removal("id"),
            .text(user), .uuid(id.halves)
        ).affectedRows > 0
    }

    /// Removes the user's device with that token; whether there was one.
    package func remove(user: String, token: String) async throws(PostgresError) -> Bool {
        try await self.pool.query(
            Self.removal("token"),
            .text(user), .text(token)
        ).affectedRows > 0
    }

    /// Removes all devices of the user that one provider serves in one app; returns how many there
    /// were.
    package func removeAll(user: String, app: String, provider: Provider) async throws(PostgresError) -> Int {
        try await self.pool.query(
            Self.removal("app", and: "provider"),
            .text(user), .text(app), .text(provider.rawValue)
        ).affectedRows
    }

    /// Removes the user's devices with the id that their makers gave them, in every app; whether there was one.
    package func remove(user: String, deviceID: String) async throws(PostgresError) -> Bool {
        try await self.pool.query(
            Self.removal("device_id"),
            .text(user), .text(deviceID)
        ).affectedRows > 0
    }

    /// Takes devices of a user back, by one of their columns or by two.
    private static func removal(_ column: String, and other: String? = nil) -> String {
        let condition = other.map { "\(column) = $2 AND \($0) = $3" } ?? "\(column) = $2"
        return DeviceAudit.noting(
            "DELETE FROM carillon.devices WHERE user_id = $1 AND \(condition) RETURNING id, user_id, provider",
            at: "clock_timestamp()", .removed, .unregistered)
    }
}
