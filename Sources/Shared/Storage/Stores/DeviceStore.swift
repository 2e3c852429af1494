// Carillon · DeviceStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Users' devices; every change of a token is an audit row.
package struct DeviceStore: Sendable {
    /// The outcome of a registration.
    package struct Registration: Sendable {
        /// The stored device, with the id that it keeps.
        package internal(set) var device: Device
        /// The user's other devices that exceeded a limit and were switched off.
        package let switchedOff: [Device]
    }

    let pool: PostgresPool
    let limits: DeviceLimits

    /// Registers devices of one user in order, all or none, at PostgreSQL's time at the latest.
    ///
    /// A device's own token moves to this user and app. FCM topics and the tokens of webhooks are
    /// only names, which several users and apps may have.
    ///
    /// Another device of the same user, app and platform is replaced if it has the same `deviceID`,
    /// or no id and the same name: a phone keeps its `deviceID` when its token changes, while two
    /// phones may share a name. A new token of the same provider takes over the identity of the
    /// replaced device, so that waiting pushes still reach the phone. Of two concurrent
    /// registrations of a device, the later one stays, whichever ends first.
    ///
    /// Beyond the app's limit, the user's least recently used devices of the app are switched off;
    /// beyond ``mostDevices``, those of all apps. The oldest inactive ones are then deleted.
    ///
    /// - Parameter silenced: whether the user silences the devices; nil keeps the previous choice.
    /// - Throws: ``PostgresError`` with SQLSTATE ``tooManyChanges`` if the user's tokens have
    ///   changed too often.
    package func register(
        _ devices: [Device],
        silenced: Bool? = nil
    ) async throws(PostgresError) -> [Registration] {
        guard let first = devices.first else { return [] }
        let user = first.user
        try await self.requireFewChanges(of: user, at: first.registeredAt)
        var statements = [UserStore.lock(user: user)]
        statements += Self.locks(tokensOf: devices)
        // The statements of each registration end before `end`.
        var ends: [Int] = []
        for device in devices {
            statements.append(Self.changes("1 / (count(*) < $3)::int4", of: user, at: device.registeredAt))
            statements += Self.registration(of: device, limit: self.limits.limit(of: device.app), silenced: silenced)
            ends.append(statements.count)
        }
        let results = try await self.pool.run(statements)
        return try ends.map { (end) throws(PostgresError) in try Self.registration(results.prefix(end)) }
    }

    /// Locks several tokens in one order, so that two calls that name them in different orders do
    /// not deadlock.
    static func locks(tokensOf devices: [Device]) -> [PostgresStatement] {
        guard devices.count > 1 else { return [] }
        let lock = PostgresStatement(
            """
            SELECT pg_advisory_xact_lock(key) FROM (
                SELECT DISTINCT hashtextextended('carillon.devices ' || token, 7) AS key FROM unnest($1) AS token
                ORDER BY key
            ) AS keys
            """,
            [.texts(devices.map { Device.canonicalToken($0.token, of: $0.provider) })])
        return [lock]
    }

    /// Reads the results of ``registration(of:limit:silenced:)``, the last of `results`.
    static func registration(_ results: ArraySlice<PostgresResult>) throws(PostgresError) -> Registration {
        let own = results.suffix(Self.statementsOfRegistration)
        guard own.count == Self.statementsOfRegistration, let stored = own.first?.first, let last = own.last
        else { throw PostgresError(.decoding, "a registration returned no row") }
        let switchedOff = try last.map { (row) throws(PostgresError) in try DeviceColumns.read(row) }
        return Registration(device: try DeviceColumns.read(stored), switchedOff: switchedOff)
    }

    /// The number of a registration's statements after the lock, whose results are read.
    private static let statementsOfRegistration = 2

    /// Registers a device while its user is locked: removes devices that it replaces and other
    /// apps' rows of a device's own token, stores it, and switches off surplus devices.
    static func registration(of device: Device, limit: Int, silenced: Bool? = nil) -> [PostgresStatement] {
        let token = Device.canonicalToken(device.token, of: device.provider)
        return [
            // All rows that change, in one order, so that two users who exchange tokens do not
            // deadlock. An order by the id alone could make PostgreSQL read all devices by the
            // index of ids.
            PostgresStatement(
                """
                SELECT FROM carillon.devices o
                WHERE o.provider = $1 AND o.token = $2 AND \(Self.otherHolder) = \(Self.holder("$3", "$1", "$2"))
                    OR o.user_id = $3 AND o.app = $4 AND o.platform = $5 AND \(Self.isSame(deviceID: "$6", name: "$7"))
                ORDER BY o.id::text FOR UPDATE
                """,
                [
                    .text(device.provider.rawValue), .text(token), .text(device.user), .text(device.app),
                    .text(device.platform.rawValue), .text(device.deviceID), .text(device.name),
                ]
            ),
            PostgresStatement(
                Self.upsert,
                [
                    .id(device.id), .text(device.user), .text(device.platform.rawValue),
                    .text(device.provider.rawValue), .text(device.app), .text(device.environment.rawValue),
                    .text(token), .text(device.name), .text(device.deviceID), .text(device.appVersion),
                    .text(device.locale), .timestamp(device.registeredAt), .bool(silenced),
                ]
            ),
            PostgresStatement(
                Self.switchOff,
                [.text(device.user), .int8(Int64(limit)), .timestamp(device.registeredAt), .text(device.app)]
            ),
        ]
    }

    /// The most devices kept per user, active or not, over all apps, because users may invent names
    /// of apps.
    private static let mostDevices = 100

    /// The changes of tokens that a user may cause in an hour; each is an audit row.
    package static let mostChangesPerHour = 200

    /// The SQLSTATE of the error for too many changes: a division by zero.
    package static let tooManyChanges = "22012"

    /// Fails with ``tooManyChanges`` if the user's tokens have changed too often in the hour before
    /// a moment.
    ///
    /// The transaction checks this again while the user is locked, so that simultaneous calls count
    /// each other's changes. PostgreSQL logs that failure as an error, so most refusals are here.
    private func requireFewChanges(of user: String, at moment: Timestamp) async throws(PostgresError) {
        let result = try await self.pool.query(Self.changes("count(*) < $3", of: user, at: moment))
        guard try result.first?.bool(0) == true else {
            throw PostgresError(.server, "the user's tokens have changed too often", sqlState: Self.tooManyChanges)
        }
    }

    /// Selects an expression over the changes of a user's tokens in the hour before a moment.
    ///
    /// $3: the limit.
    private static func changes(_ expression: String, of user: String, at moment: Timestamp) -> PostgresStatement {
        PostgresStatement(
            """
            SELECT \(expression) FROM (
                SELECT FROM carillon.delivery_attempts
                WHERE user_id = $1 AND at > least($2, now()) - interval '1 hour' AND kind = 'token' LIMIT $3
            ) AS changes
            """,
            [.text(user), .timestamp(moment), .int8(Int64(Self.mostChangesPerHour))])
    }

    /// Switches off surplus devices, and deletes the oldest inactive ones beyond ``mostDevices``.
    ///
    /// $1: user, $2: limit, $3: when, $4: app. Rows: the devices switched off.
    private static let switchOff = """
        WITH x AS (
            UPDATE carillon.devices d
            SET active = false, deactivated_reason = '\(DeviceAudit.Reason.tooManyDevices.rawValue)'
            WHERE d.id IN (
                (SELECT id FROM carillon.devices WHERE user_id = $1 AND app = $4 AND active
                ORDER BY last_used_at DESC, id OFFSET $2)
                UNION ALL
                (SELECT id FROM carillon.devices WHERE user_id = $1 AND active
                ORDER BY last_used_at DESC, id OFFSET \(Self.mostDevices))
            )
            RETURNING \(DeviceColumns.list)
        ),
        dropped AS (
            DELETE FROM carillon.devices d WHERE NOT d.active AND d.id IN (
                SELECT id FROM carillon.devices WHERE user_id = $1
                ORDER BY active DESC, last_used_at DESC, id OFFSET \(Self.mostDevices)
            )
        ),
        audited AS (
            \(DeviceAudit.insert)
            \(DeviceAudit.rows(from: "x", at: "$3", .deactivated, .tooManyDevices))
        )
        SELECT \(DeviceColumns.list) FROM x d
        """

    /// The reason of a registration, from the stored row `x`, the row `o` that it updated, the
    /// token's previous rows `old`, and the `removed` rows.
    private static let reason = """
        CASE WHEN EXISTS (SELECT FROM old q WHERE q.user_id <> x.user_id) THEN '\(DeviceAudit.Reason.moved.rawValue)'
            WHEN o.id IS NOT NULL THEN '\(DeviceAudit.Reason.again.rawValue)'
            WHEN x.id IN (SELECT id FROM removed) THEN '\(DeviceAudit.Reason.newToken.rawValue)'
            ELSE '\(DeviceAudit.Reason.new.rawValue)' END
        """

    /// Whether a row of the user, app and platform is the same device.
    private static func isSame(deviceID: String, name: String) -> String {
        "(device_id = \(deviceID) OR device_id IS NULL AND name = \(name))"
    }

    /// Part of a device's unique key: a hash of the user for topics and webhook tokens, which
    /// several users may register; empty for other tokens.
    ///
    /// The index `devices_token` has the same expression. A hash keeps its rows within their limit.
    private static func holder(_ user: String, _ provider: String, _ token: String) -> String {
        """
        (CASE WHEN \(provider) = '\(Provider.webhook)' OR starts_with(\(token), '\(Device.topicPrefix)') \
        THEN md5(\(user)) ELSE '' END)
        """
    }

    /// The same for the row `o`.
    private static let otherHolder = Self.holder("o.user_id", "o.provider", "o.token")

    /// The reason of the removal of device `x` by a registration of `user`.
    private static func loss(to user: String) -> String {
        """
        CASE WHEN x.user_id = \(user) THEN '\(DeviceAudit.Reason.replaced.rawValue)'
            ELSE '\(DeviceAudit.Reason.moved.rawValue)' END
        """
    }

    /// Stores or moves a token, with an audit row unless the user already had it active.
    ///
    /// A new token keeps the user's choice to silence the device that it replaces, and so does a
    /// token that moves to another app. A new token of the same app and provider also keeps that
    /// device's id and, if pushes were enqueued for it, since when: so its waiting pushes go to the
    /// new token, and still count. PostgreSQL lets a statement insert an id that it has deleted.
    ///
    /// The previous rows are read first and locked, in order of id so that two registrations of a
    /// token do not deadlock: of two users who register it at once, the second takes it from the
    /// first.
    private static let upsert = """
        WITH old AS MATERIALIZED (
            SELECT o.id, o.user_id, o.provider, o.active, o.app FROM carillon.devices o
            WHERE o.provider = $4 AND o.token = $7
                AND \(Self.otherHolder) = \(Self.holder("$2", "$4", "$7"))
                AND (o.app = $5 OR \(Self.otherHolder) = '')
            ORDER BY o.id FOR UPDATE
        ),
        removed AS (
            DELETE FROM carillon.devices o
            WHERE user_id = $2 AND app = $5 AND platform = $3 AND (provider <> $4 OR token <> $7)
                AND \(Self.isSame(deviceID: "$9", name: "$8")) AND registered_at <= least($12, now())
                OR app <> $5 AND provider = $4 AND token = $7 AND \(Self.otherHolder) = ''
            RETURNING id, user_id, provider, app, active AND NOT silenced AS was_pushed, pushed_since, last_used_at
        ),
        kept AS (
            SELECT id, CASE WHEN was_pushed THEN pushed_since END AS pushed_since FROM removed
            WHERE user_id = $2 AND app = $5 AND provider = $4
            ORDER BY last_used_at DESC, id LIMIT 1
        ),
        stored AS (
            INSERT INTO carillon.devices AS d (id, user_id, platform, provider, app, environment, token, name, device_id,
                app_version, locale, registered_at, last_used_at, created_at, silenced, pushed_since)
            SELECT coalesce(kept.id, $1), $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, asked.at, asked.at,
                coalesce(k.created_at, asked.at), coalesce($13, k.silenced, false), coalesce(kept.pushed_since, now())
            FROM (SELECT count(*), least($12, now()) AS at FROM old) asked
            LEFT JOIN LATERAL (
                SELECT silenced, coalesce(created_at, registered_at) AS created_at FROM carillon.devices
                WHERE user_id = $2 AND (id IN (SELECT id FROM old)
                    OR app = $5 AND platform = $3 AND \(Self.isSame(deviceID: "$9", name: "$8")))
                ORDER BY last_used_at DESC, id LIMIT 1
            ) k ON true
            LEFT JOIN kept ON true
            ON CONFLICT (token, provider, \(Self.holder("user_id", "provider", "token")), app) DO UPDATE SET
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
        audited AS (
            \(DeviceAudit.insert)
            \(DeviceAudit.rows(from: Self.storedAndOld, at: "$12", .registered, reason: Self.reason))
            WHERE o.id IS NULL OR o.user_id <> x.user_id OR NOT o.active
            UNION ALL
            \(DeviceAudit.rows(from: Self.oldOfOthers, at: "$12", .removed, .moved))
            UNION ALL
            \(DeviceAudit.rows(from: "removed x", at: "$12", .removed, reason: Self.loss(to: "$2")))
            WHERE x.id NOT IN (SELECT id FROM stored)
        )
        SELECT \(DeviceColumns.list) FROM stored d
        """

    /// The stored row with the one that it updated.
    private static let storedAndOld = "stored x LEFT JOIN old o ON o.app = x.app"
    /// The row that it updated, if that was another user's.
    private static let oldOfOthers = "old x JOIN stored s ON s.app = x.app AND s.user_id <> x.user_id"

    /// The user's devices, most recently used first.
    package func list(user: String) async throws(PostgresError) -> [Device] {
        let result = try await self.pool.query(
            """
            SELECT \(DeviceColumns.list) FROM carillon.devices d
            WHERE d.user_id = $1 ORDER BY d.last_used_at DESC, d.id LIMIT 100
            """,
            .text(user)
        )
        return try result.map { (row) throws(PostgresError) in try DeviceColumns.read(row) }
    }

    /// Removes a device of the user; returns whether it existed.
    package func remove(user: String, id: DeviceID) async throws(PostgresError) -> Bool {
        try await self.pool.delete(Self.removal("id = $2"), .text(user), .id(id)) > 0
    }

    /// Removes the user's device with this token; returns whether it existed.
    ///
    /// - Parameter app: the app that must have the device; nil for any.
    package func remove(user: String, token: String, app: String? = nil) async throws(PostgresError) -> Bool {
        try await self.pool.delete(
            Self.removal("(token = $2 OR provider = 'apns' AND token = lower($2)) AND \(Self.isOfApp)"),
            .text(user), .text(token), .text(app)
        ) > 0
    }

    /// Removes all devices of the user with this app and provider; returns their number.
    package func removeAll(user: String, app: String, provider: Provider) async throws(PostgresError) -> Int {
        try await self.pool.delete(
            Self.removal("app = $2 AND provider = $3"),
            .text(user), .text(app), .text(provider.rawValue)
        )
    }

    /// Removes the user's devices with this device id; returns whether one existed.
    ///
    /// - Parameter app: the app that must have them; nil for every app.
    package func remove(user: String, deviceID: String, app: String? = nil) async throws(PostgresError) -> Bool {
        try await self.pool.delete(
            Self.removal("device_id = $2 AND \(Self.isOfApp)"),
            .text(user), .text(deviceID), .text(app)
        ) > 0
    }

    /// Whether a device is of the app $3, if that is not null.
    private static let isOfApp = "($3::text IS NULL OR app = $3)"

    /// Removes devices of a user by a condition on $2 and $3.
    private static func removal(_ condition: String) -> String {
        DeviceAudit.noting(
            "DELETE FROM carillon.devices WHERE user_id = $1 AND \(condition) RETURNING id, user_id, provider",
            at: "clock_timestamp()", .removed, .unregistered)
    }
}

/// Changes by clients that identify their devices by more than a token.
extension DeviceStore {
    /// Devices whose token changed.
    private static let renamed = "changed x JOIN old o ON o.id = x.id AND o.token <> x.token"

    /// A client's changes to a device: nil keeps a field, an inner nil clears it.
    package struct Change: Sendable, Equatable {
        package var token: String?
        package var deviceID: String??
        package var appVersion: String??
        package var locale: String??

        package init(
            token: String? = nil,
            deviceID: String?? = nil,
            appVersion: String?? = nil,
            locale: String?? = nil
        ) {
            self.token = token
            self.deviceID = deviceID
            self.appVersion = appVersion
            self.locale = locale
        }
    }

    /// Records that a device was seen, with its changes.
    ///
    /// A new token switches the device on, like a registration: the old one may just have died.
    /// Other users and apps lose the token if it is a device's own.
    ///
    /// - Returns: the device after the change; nil if the user has none with this id.
    /// - Throws: ``PostgresError`` with SQLSTATE ``tooManyChanges`` if there is a new token and the
    ///   user's tokens have changed too often.
    package func touch(
        user: String,
        id: DeviceID,
        change: Change = Change(),
        at: Timestamp
    ) async throws(PostgresError) -> Device? {
        func isGiven(_ text: String??) -> PostgresValue { .bool(text != nil) }
        func value(_ text: String??) -> PostgresValue { .text(text ?? nil) }
        var checks: [PostgresStatement] = []
        if change.token != nil {
            try await self.requireFewChanges(of: user, at: at)
            checks = [
                // Unlike a registration, a touch creates no user.
                PostgresStatement("SELECT FROM carillon.users WHERE user_id = $1 FOR UPDATE", [.text(user)]),
                Self.changes("1 / (count(*) < $3)::int4", of: user, at: at),
            ]
        }
        let changes: [PostgresStatement] = [
            PostgresStatement(
                DeviceAudit.noting(
                    """
                    DELETE FROM carillon.devices o USING carillon.devices d
                    WHERE d.id = $1 AND d.user_id = $2 AND o.id <> d.id AND o.provider = d.provider AND o.token = $3
                        AND \(Self.otherHolder) = \(Self.holder("d.user_id", "d.provider", "$3"))
                        AND (o.app = d.app OR \(Self.otherHolder) = '')
                    RETURNING o.id, o.user_id, o.provider
                    """,
                    at: "$4", .removed, reason: Self.loss(to: "$2")),
                [.id(id), .text(user), .text(change.token), .timestamp(at)]
            ),
            PostgresStatement(
                """
                WITH old AS MATERIALIZED (
                    SELECT o.id, o.token FROM carillon.devices o WHERE o.id = $1 AND o.user_id = $2
                ),
                changed AS (
                    UPDATE carillon.devices d SET token = coalesce($3, d.token),
                        device_id = CASE WHEN $6 THEN $4 ELSE d.device_id END,
                        app_version = CASE WHEN $8 THEN $7 ELSE d.app_version END,
                        locale = CASE WHEN $10 THEN $9 ELSE d.locale END,
                        created_at = coalesce(d.created_at, d.registered_at),
                        active = d.active OR coalesce($3 <> d.token, false),
                        deactivated_reason = CASE WHEN $3 <> d.token THEN NULL ELSE d.deactivated_reason END,
                        last_used_at = least($5, now()),
                        registered_at = CASE WHEN $3 <> d.token THEN least($5, now()) ELSE d.registered_at END
                    WHERE d.id = $1 AND d.user_id = $2
                    RETURNING \(DeviceColumns.list)
                ),
                audited AS (
                    \(DeviceAudit.insert)
                    \(DeviceAudit.rows(from: Self.renamed, at: "$5", .registered, .newToken))
                )
                SELECT \(DeviceColumns.list) FROM changed d
                """,
                [
                    .id(id), .text(user), .text(change.token), value(change.deviceID),
                    .timestamp(at), isGiven(change.deviceID), value(change.appVersion),
                    isGiven(change.appVersion), value(change.locale), isGiven(change.locale),
                ]
            ),
        ]
        let results = try await self.pool.run(checks + changes)
        guard let row = results.last?.first else { return nil }
        return try DeviceColumns.read(row)
    }

    /// Silences a device of the user or turns pushes on again.
    ///
    /// - Returns: the device after the change; nil if the user has none with this id.
    package func setSilenced(
        _ isSilenced: Bool,
        user: String,
        id: DeviceID
    ) async throws(PostgresError) -> Device? {
        let result = try await self.pool.query(
            """
            UPDATE carillon.devices d SET silenced = $3 WHERE d.id = $1 AND d.user_id = $2
            RETURNING \(DeviceColumns.list)
            """,
            .id(id), .text(user), .bool(isSilenced)
        )
        return try result.first.map { (row) throws(PostgresError) in try DeviceColumns.read(row) }
    }
}

/// Reads rows of devices.
enum DeviceColumns {
    /// The columns that ``read(_:at:)`` expects, of the alias `d`.
    static let list = """
        d.id, d.user_id, d.platform, d.provider, d.app, d.environment, d.token, d.name, d.device_id, d.app_version, \
        d.locale, d.active, d.deactivated_reason, d.registered_at, d.last_used_at, \
        d.silenced, d.created_at
        """

    /// The same with nulls for columns that messages do not use.
    static let messageList = """
        d.id, d.user_id, d.platform, d.provider, d.app, d.environment, d.token, NULL::text, NULL::text, NULL::text, \
        d.locale, d.active, NULL::text, d.registered_at, d.last_used_at, d.silenced, \
        NULL::timestamptz
        """

    /// Reads a device whose columns begin at `first`.
    ///
    /// A platform of a newer release becomes that of its provider, an environment `production`.
    static func read(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) -> Device {
        guard let provider = Provider(rawValue: try row.text(first + 3)) else {
            throw PostgresError(.decoding, "a device's provider is invalid")
        }
        let platform = Platform(rawValue: try row.text(first + 2))
        let environment = ProviderEnvironment(rawValue: try row.text(first + 5))
        var device = Device(
            id: try row.id(first),
            user: try row.text(first + 1),
            platform: platform ?? Platform.allCases.first { $0.provider == provider } ?? .web,
            provider: provider,
            app: try row.text(first + 4),
            environment: environment ?? .production,
            token: try row.text(first + 6),
            registeredAt: try row.timestamp(first + 13)
        )
        device.name = try row.optionalText(first + 7)
        device.deviceID = try row.optionalText(first + 8)
        device.appVersion = try row.optionalText(first + 9)
        device.locale = try row.optionalText(first + 10)
        device.isActive = try row.bool(first + 11)
        device.deactivatedReason = try row.optionalText(first + 12)
        device.isSilenced = try row.bool(first + 15)
        device.lastUsedAt = try row.timestamp(first + 14)
        if let createdAt = try row.optionalTimestamp(first + 16) { device.createdAt = createdAt }
        return device
    }
}
