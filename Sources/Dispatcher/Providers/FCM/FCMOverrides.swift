// Carillon · FCMOverrides.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a job asks of FCM beyond the common fields, `platform.fcm`: names of Android's notification, and whole blocks.
struct FCMOverrides {
    /// One after the other, as a null in the later takes away what the earlier or the message has.
    private var changes: [JSONValue] = []

    init(_ value: JSONValue?) {
        guard let members = value?.object else { return }
        let named = members.filter { PlatformFields.android.contains($0.key) }
        let blocks = members.filter { PlatformFields.fcmBlocks.contains($0.key) }
        if !named.isEmpty {
            let android = JSONValue.object([JSONMember("notification", .object(named))])
            self.changes.append(.object([JSONMember("android", android)]))
        }
        if !blocks.isEmpty { self.changes.append(.object(blocks)) }
    }

    /// The channel that the job names.
    var channel: String? {
        self.changes.reversed().compactMap { $0["android"]?["notification"]?["channel_id"]?.string }.first
    }

    /// What they add to the bytes that FCM counts.
    var size: Int {
        let counted = self.changes.flatMap { change in
            [change["android"]?["notification"], change["android"]?["data"], change["notification"]]
        }
        return counted.reduce(0) { $0 + Self.size($1) }
    }

    func applied(to body: [UInt8]) -> [UInt8] {
        guard !self.changes.isEmpty, let whole = try? JSONParser.parse(body) else { return body }
        return JSONWriter.bytes(of: self.changes.reduce(whole) { $0.merging(.object([JSONMember("message", $1)])) })
    }

    private static func size(_ value: JSONValue?) -> Int {
        switch value {
        case .string(let text): text.utf8.count
        case .object(let members): members.reduce(0) { $0 + $1.key.utf8.count + self.size($1.value) }
        case .array(let elements): elements.reduce(0) { $0 + self.size($1) }
        case .number(let text): text.utf8.count
        case .bool, .null: 5
        case nil: 0
        }
    }
}
