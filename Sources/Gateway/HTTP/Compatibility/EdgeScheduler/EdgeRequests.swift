// Carillon · EdgeRequests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Storage

/// Parses and checks rows from the scheduler's clients.
enum EdgeRequests {
    /// The most rows per call.
    private static let mostRows = 100
    private static let longestVersion = 64

    /// A token from a client.
    struct Token: Equatable {
        var platform: Platform
        var token: String
        var deviceID: String?
        var appVersion: String?
        var locale: String?
    }

    /// An event from a client.
    struct Event: Equatable {
        enum Kind: String, CaseIterable {
            case delivered, opened
        }

        var id: NotificationID
        var kind: Kind
    }

    /// Parses new or known tokens; the server sets times and ids.
    ///
    /// - Throws: `Problem` 400 with every fault, or 403 for another user's row.
    static func tokens(_ body: JSONValue?, user: String) throws -> [Token] {
        try self.rows(body) { fields in
            try self.requireOwner(&fields, user: user)
            let platform = fields.choice("platform", of: Platform.self, isRequired: true)
            if platform == .web || platform == .webhook { fields.fault("platform", "must be ios or android") }
            let token = fields.newToken("token")
            let deviceID = fields.cutText("device_id", limit: Device.longestName)
            let appVersion = fields.cutText("app_version", limit: Self.longestVersion)
            let locale = self.locale(&fields)
            guard let platform, let token else { return nil }
            if platform == .ios, !Device.isAPNSToken(token) { fields.fault("token", Device.apnsTokenFault) }
            return Token(
                platform: platform, token: token, deviceID: deviceID, appVersion: appVersion, locale: locale)
        }
    }

    /// Parses a change of existing tokens, which also counts as a use.
    ///
    /// - Throws: `Problem` 400 with every fault, or 403 for another user's row.
    static func change(_ body: JSONValue?, user: String) throws -> DeviceStore.Change {
        let changes = try self.rows(body) { fields in
            try self.requireOwner(&fields, user: user)
            var change = DeviceStore.Change(token: fields.newToken("token", isRequired: false))
            func isGiven(_ name: String) -> Bool { fields.value[name] != nil }
            if isGiven("device_id") { change.deviceID = fields.cutText("device_id", limit: Device.longestName) }
            if isGiven("app_version") { change.appVersion = fields.cutText("app_version", limit: Self.longestVersion) }
            if isGiven("locale") { change.locale = self.locale(&fields) }
            return change
        }
        guard changes.count == 1, let change = changes.first else {
            throw Problem(.badRequest, "the body must be one JSON object")
        }
        return change
    }

    /// - Throws: `Problem` 400 with every fault.
    static func events(_ body: JSONValue?) throws -> [Event] {
        try self.rows(body) { fields in
            let text = fields.text("notification_id", limit: 36, isRequired: true)
            let id = text.flatMap { NotificationID($0) }
            if text != nil, id == nil { fields.fault("notification_id", "must be a notification's id") }
            let kind = fields.choice("event", of: Event.Kind.self, isRequired: true)
            guard let id, let kind else { return nil }
            return Event(id: id, kind: kind)
        }
    }

    private static func locale(_ fields: inout FieldReader) -> String? {
        let text = fields.text("locale", limit: LocaleTag.longest)
        if let text, !UserFields.isLanguageTag(text) { fields.fault("locale", UserFields.noLanguageTag) }
        return text
    }

    /// Returns PostgreSQL's code, as PostgREST does: a missing value or a failed check.
    private static func code(of faults: [JobFault]) -> String {
        faults.contains { $0.reason == "is missing" } ? "23502" : "23514"
    }

    /// - Throws: `Problem` 400 for a token that is not from APNs.
    static func requireAPNSToken(_ token: String) throws {
        guard !Device.isAPNSToken(token) else { return }
        let faults = [JobFault("token", Device.apnsTokenFault)]
        throw Problem(.badRequest, "some fields are invalid", faults: faults, code: self.code(of: faults))
    }

    private static func requireOwner(_ fields: inout FieldReader, user: String) throws {
        guard let named = fields.text("user_id", limit: JobLimits.user), !EdgeRow.isSameID(named, user) else { return }
        throw Problem(.forbidden, "a row of user_push_tokens belongs to its user")
    }

    /// Parses an object or an array of objects.
    private static func rows<Row>(_ body: JSONValue?, _ read: (inout FieldReader) throws -> Row?) throws -> [Row] {
        let values = body?.array ?? body.map { [$0] } ?? []
        guard (1...Self.mostRows).contains(values.count), values.allSatisfy({ $0.object != nil }) else {
            throw Problem(.badRequest, "the body must be a JSON object, or an array of 1 to \(Self.mostRows) of them")
        }
        var rows: [Row] = []
        var faults: [JobFault] = []
        for (index, value) in values.enumerated() {
            var fields = FieldReader(lenient: value, prefix: body?.array == nil ? "" : "[\(index)].")
            if let row = try read(&fields) { rows.append(row) }
            faults += fields.faults
        }
        guard faults.isEmpty else {
            throw Problem(.badRequest, "some fields are invalid", faults: faults, code: self.code(of: faults))
        }
        return rows
    }
}

extension Schema {
    static let edgeToken = Schema(
        "EdgeToken",
        [
            "user_id?": .string(max: JobLimits.user).orNull("The caller's own id."),
            "platform": .choice("ios", "android"),
            "token": .deviceToken("The hexadecimal APNs token for `ios`, the FCM token for `android`."),
            "device_id?": .string.orNull(
                "Replaces its previous registration; cut to \(Device.longestName) characters."),
            "app_version?": .string.orNull("Cut to 64 characters."),
            "locale?": .lenientLocale.orNull,
        ])

    static let edgeEvent = Schema(
        "EdgeEvent",
        ["notification_id": .uuid, "event": .cases(of: EdgeRequests.Event.Kind.self)])
}
