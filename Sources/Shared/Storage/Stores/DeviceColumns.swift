// Carillon · DeviceColumns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Rows as devices.
enum DeviceColumns {
    /// The columns that ``read(_:at:)`` expects, of a table called `d`.
    static let list = """
        d.id, d.user_id, d.platform, d.provider, d.app, d.environment, d.token, d.name, d.device_id, d.app_version, \
        d.locale, d.active, d.deactivated_reason, d.registered_at, d.last_used_at, \
        d.silenced, d.created_at
        """

    /// The same with nulls for what no message is made of.
    static let messageList = """
        d.id, d.user_id, d.platform, d.provider, d.app, d.environment, d.token, NULL::text, NULL::text, NULL::text, \
        d.locale, d.active, NULL::text, d.registered_at, d.last_used_at, d.silenced, \
        NULL::timestamptz
        """

    /// Reads a device whose columns begin at `first`.
    static func read(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) -> Device {
        guard
            let platform = Platform(rawValue: try row.text(first + 2)),
            let provider = Provider(rawValue: try row.text(first + 3)),
            let environment = ProviderEnvironment(rawValue: try row.text(first + 5))
        else { throw PostgresError(.decoding, "a device is of an unknown kind") }
        var device = Device(
            id: NotificationID(try row.uuid(first)),
            user: try row.text(first + 1),
            platform: platform,
            provider: provider,
            app: try row.text(first + 4),
            environment: environment,
            token: try row.text(first + 6),
            registeredAt: Timestamp(microseconds: try row.timestamptz(first + 13))
        )
        device.name = try row.optionalText(first + 7)
        device.deviceID = try row.optionalText(first + 8)
        device.appVersion = try row.optionalText(first + 9)
        device.locale = try row.optionalText(first + 10)
        device.isActive = try row.bool(first + 11)
        device.deactivatedReason = try row.optionalText(first + 12)
        device.isSilenced = try row.bool(first + 15)
        device.lastUsedAt = Timestamp(microseconds: try row.timestamptz(first + 14))
        if !row.isNull(first + 16) {
            device.createdAt = Timestamp(microseconds: try row.timestamptz(first + 16))
        }
        return device
    }
}
