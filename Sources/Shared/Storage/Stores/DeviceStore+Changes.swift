// Carillon · DeviceStore+Changes.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What clients do that know their devices by more than a token.
extension DeviceStore {
    /// Registers a device, and removes what the same `deviceID` of the user had registered with that app and provider.
    ///
    /// A phone keeps its id when its token changes, so the older token would only bring the same message twice. Only older
    /// registrations go: of two at once, the later stays whichever ends first.
    ///
    /// - Parameter silenced: as in ``register(_:silenced:)``.
    package func registerReplacing(_ device: Device, silenced: Bool? = nil) async throws(PostgresError) -> Registration
    {
        let registration = try await self.register(device, silenced: silenced)
        guard let deviceID = device.deviceID else { return registration }
        let stored = registration.device
        // Afterwards, and on its own: a crash in between leaves one token too many, which the next registration removes.
        _ = try await self.pool.query(
            DeviceAudit.noting(
                """
                DELETE FROM carillon.devices
                WHERE user_id = $1 AND app = $2 AND provider = $3 AND device_id = $4 AND (registered_at, id) < ($5, $6)
                RETURNING id, user_id, provider
                """,
                at: "$5", .removed, .replaced),
            .text(device.user), .text(device.app), .text(device.provider.rawValue), .text(deviceID),
            .timestamptz(stored.registeredAt.microseconds), .uuid(stored.id.halves)
        )
        return registration
    }

    /// Devices whose token is another than before.
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

    /// Notes that a device was seen, and what changes of it; an older holder of a new token loses it.
    ///
    /// - Returns: the device as it is now; nil if the user has none with that id.
    package func touch(
        user: String,
        id: NotificationID,
        change: Change = Change(),
        at: Timestamp
    ) async throws(PostgresError) -> Device? {
        func isSaid(_ text: String??) -> PostgresValue { .bool(text != nil) }
        func value(_ text: String??) -> PostgresValue { .text(text ?? nil) }
        let results = try await self.pool.run([
            PostgresStatement(
                DeviceAudit.noting(
                    """
                    DELETE FROM carillon.devices o USING carillon.devices d
                    WHERE d.id = $1 AND d.user_id = $2 AND o.id <> d.id AND o.app = d.app AND o.provider = d.provider
                        AND o.token = $3
                    RETURNING o.id, o.user_id, o.provider
                    """,
                    at: "$4", .removed,
                    reason: """
                        CASE WHEN x.user_id = $2 THEN '\(DeviceAudit.Reason.replaced.rawValue)'
                            ELSE '\(DeviceAudit.Reason.moved.rawValue)' END
                        """),
                [.uuid(id.halves), .text(user), .text(change.token), .timestamptz(at.microseconds)]
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
                        last_used_at = $5, registered_at = CASE WHEN $3 <> d.token THEN $5 ELSE d.registered_at END
                    WHERE d.id = $1 AND d.user_id = $2
                    RETURNING \(DeviceColumns.list)
                ),
                told AS (
                    \(DeviceAudit.insert)
                    \(DeviceAudit.rows(from: Self.renamed, at: "$5", .registered, .newToken))
                )
                SELECT \(DeviceColumns.list) FROM changed d
                """,
                [
                    .uuid(id.halves), .text(user), .text(change.token), value(change.deviceID),
                    .timestamptz(at.microseconds), isSaid(change.deviceID), value(change.appVersion),
                    isSaid(change.appVersion), value(change.locale), isSaid(change.locale),
                ]
            ),
        ])
        guard let row = results.last?.first else { return nil }
        return try DeviceColumns.read(row)
    }

    /// Switches a device of the user off or on for pushes; its registration stays.
    ///
    /// - Returns: the device as it is now; nil if the user has none with that id.
    package func setSilenced(
        _ isSilenced: Bool,
        user: String,
        id: NotificationID
    ) async throws(PostgresError) -> Device? {
        let result = try await self.pool.query(
            """
            UPDATE carillon.devices d SET silenced = $3 WHERE d.id = $1 AND d.user_id = $2
            RETURNING \(DeviceColumns.list)
            """,
            .uuid(id.halves), .text(user), .bool(isSilenced)
        )
        return try result.first.map { (row) throws(PostgresError) in try DeviceColumns.read(row) }
    }
}
