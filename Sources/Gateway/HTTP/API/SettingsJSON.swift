// Carillon · SettingsJSON.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A user's settings as JSON.
enum SettingsJSON {
    /// - Parameter isEmailMissing: whether e-mail is on for a type, and there is no address that
    ///   takes it.
    static func write(_ settings: UserSettings, isEmailMissing: Bool, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("zone", settings.zone)
        writer.member("locale", settings.locale)
        writer.member("email", settings.email)
        writer.member("opted_out", settings.isOptedOut)
        writer.member("email_opted_out", settings.isEmailOptedOut)
        writer.key("quiet_hours")
        self.write(settings.quietHours, to: &writer)
        writer.member("email_missing", isEmailMissing)
        writer.endObject()
    }

    /// Quiet hours as an object, or null for none.
    static func write(_ quietHours: QuietHours?, to writer: inout JSONWriter) {
        guard let quietHours else {
            writer.null()
            return
        }
        writer.beginObject()
        writer.member("start", Self.clock(quietHours.start))
        writer.member("end", Self.clock(quietHours.end))
        writer.key("weekdays")
        writer.beginArray()
        for day in 1...7 where quietHours.weekdays & 1 << UInt8(day - 1) != 0 { writer.integer(day) }
        writer.endArray()
        writer.endObject()
    }

    private static func clock(_ minutes: Int) -> String {
        func two(_ value: Int) -> String { (value < 10 ? "0" : "") + String(value) }
        return two(minutes / 60) + ":" + two(minutes % 60)
    }
}
