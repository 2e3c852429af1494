// Carillon · TaskShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The household-task app's JSON.
enum TaskShape {
    /// A device as a row of its table; APNs's and FCM's are alike.
    static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", TaskDeviceNumber.number(of: device.id))
        writer.member("name", device.name)
        writer.member("registration_id", device.token)
        writer.member("device_id", device.deviceID)
        writer.member("active", device.getsPushes)
        writer.member("date_created", device.createdAt.rfc3339)
        if device.provider == .fcm {
            writer.member("cloud_message_type", "FCM")
        }
        writer.endObject()
    }

    /// What a client says of a device.
    static func registration(
        _ fields: inout RequestFields,
        platform: Platform,
        provider: Provider
    ) -> DeviceKeeper.Registration {
        let token = fields.newToken("registration_id")
        if provider == .apns, let token, !Device.isAPNSToken(token) {
            fields.fault("registration_id", Device.noAPNSToken)
        }
        var registration = DeviceKeeper.Registration(platform: platform, provider: provider, token: token ?? "")
        registration.name = fields.text("name", limit: DeviceKeeper.longestName)
        registration.deviceID = Self.deviceID(&fields)
        registration.isSilenced = fields.flag("active").map { !$0 }
        return registration
    }

    /// Android's clients may send it as a number.
    private static func deviceID(_ fields: inout RequestFields) -> String? {
        if case .number(let text) = fields.value["device_id"] { return String(text.prefix(DeviceKeeper.longestName)) }
        return fields.text("device_id", limit: DeviceKeeper.longestName)
    }
}
