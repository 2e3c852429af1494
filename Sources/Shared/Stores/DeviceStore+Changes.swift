// Carillon · DeviceStore+Changes.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Postgres

/// What clients do that know their devices by more than a token.
extension DeviceStore {
    /// Registers a device, and removes what the same `deviceID` of the user had registered with that app and provider.
    ///
    /// A phone keeps its id when its token changes, so the older token would only bring the same message twice. Only older
    /// registrations go: of two at once, the later stays whichever ends first.
    ///
    /// - Returns: the device as it is stored.
    package func registerReplacing(_ device: Device) async throws(PostgresError) -> Device {
        let stored = try await self.register(device)
        guard let deviceID = device.deviceID else { return stored }
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
        return stored
    }

    /// Devices whose token is another than before.
    private static let renamed = "changed x JOIN old o ON o.id = x.id AND o.token <> x.token"

    /// Notes that a device was seen, with a new token if there is one; an older holder of that token loses it.
    ///
    /// - Parameter token: nil to leave it as it is.
    /// - Returns: the device as it is now; nil if the user has none with that id.
    package func touch(
        user: String,
        id: NotificationID,
        token: String?,
        deviceID: String?,
        at: Timestamp
    ) async throws(PostgresError) -> Device? {
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
                [.uuid(id.halves), .text(user), .text(token), .timestamptz(at.microseconds)]
            ),
            PostgresStatement(
                """
                WITH old AS MATERIALIZED (
                    SELECT o.id, o.token FROM carillon.devices o WHERE o.id = $1 AND o.user_id = $2
                ),
                changed AS (
                    UPDATE carillon.devices d SET token = coalesce($3, d.token), device_id = coalesce($4, d.device_id),
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
                [.uuid(id.halves), .text(user), .text(token), .text(deviceID), .timestamptz(at.microseconds)]
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
