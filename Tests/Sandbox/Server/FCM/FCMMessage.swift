// Carillon · FCMMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A valid message: the parts that the endpoint needs.
struct FCMMessage {
    /// The token, the installation id, the topic or the condition.
    let target: String
    /// Whether the target is a topic or a condition.
    let isBroadcast: Bool
    /// `validate_only`: the message is checked, but neither sent nor recorded.
    let isDryRun: Bool

    private static let targets = ["token", "fid", "topic", "condition"]

    /// Checks the body of `messages:send` as FCM does; throws FCM's error response.
    init(_ body: JSONValue) throws(FCMRefusal) {
        do throws(FCMField.Mismatch) {
            try FCMField.message(.request).check(body)
        } catch {
            throw .unreadable(error.description, field: error.path.isEmpty ? nil : error.path)
        }
        guard let message = body.member("message") else {
            throw .invalid("The message is not set.", field: "message")
        }
        if case .bool(true) = body.member("validate_only", or: "validateOnly") {
            self.isDryRun = true
        } else {
            self.isDryRun = false
        }
        let named = Self.targets.compactMap { name in message.member(name)?.string.map { (name, $0) } }
        guard let (kind, target) = named.first else {
            throw .invalid("Recipient of the message is not set.", field: "message.token")
        }
        if named.count > 1 {
            let description =
                "Invalid value at 'message' (oneof), oneof field 'target' is already set. Cannot set '\(named[1].0)'"
            throw .unreadable(description, field: "message")
        }
        self.target = target
        self.isBroadcast = kind == "topic" || kind == "condition"
        try Self.check(target, kind)
        try FCMMessageRules.check(message, limit: self.isBroadcast ? 2048 : 4096)
    }

    private static func check(_ target: String, _ kind: String) throws(FCMRefusal) {
        switch kind {
        case "topic":
            guard FCMText.isLabel(target) else { throw .invalid("Invalid topic name", field: "message.topic") }
        case "condition":
            guard FCMCondition.isValid(target) else {
                throw .invalid("Invalid condition expression provided.", field: "message.condition")
            }
        default:
            guard FCMText.isToken(target) else { throw .malformedToken }
        }
    }
}

/// FCM's rules for a message beyond the types of its fields.
enum FCMMessageRules {
    private static let reservedKeys: Set = ["from", "message_type", "collapse_key"]
    private static let reservedPrefixes = ["google", "gcm"]
    private static let maximumTimeToLive = 2_419_200.0

    /// `limit` is the largest total of keys and values, in bytes.
    static func check(_ message: JSONValue, limit: Int) throws(FCMRefusal) {
        let android = message.member("android")
        let apns = message.member("apns")
        let webpush = message.member("webpush")
        try self.checkKeys(message.member("data"), path: "message.data")
        try self.checkKeys(android?.member("data"), path: "message.android.data")
        try self.checkKeys(webpush?.member("data"), path: "message.webpush.data")
        for (options, path) in [
            (message, "message"), (android, "message.android"), (apns, "message.apns"), (webpush, "message.webpush"),
        ] {
            try self.checkLabel(options, path: path)
        }
        if let android { try self.checkAndroid(android) }
        if let apns { try self.checkAPNS(apns, limit: limit) }
        if let webpush { try self.checkWebpush(webpush) }

        let common = self.size(message.member("data")) + self.size(message.member("notification"))
        let size = common + self.size(android?.member("data")) + self.size(android?.member("notification"))
        guard size <= limit else { throw .invalid("Android message is too big", field: nil) }
    }

    private static func checkKeys(_ data: JSONValue?, path: String) throws(FCMRefusal) {
        for (index, member) in (data?.object ?? []).enumerated() {
            let isReserved =
                self.reservedKeys.contains(member.key) || self.reservedPrefixes.contains { member.key.hasPrefix($0) }
            guard !isReserved, !member.key.isEmpty else {
                throw .invalid("Invalid data payload key: \(member.key)", field: "\(path)[\(index)].key")
            }
        }
    }

    private static func checkLabel(_ owner: JSONValue?, path: String) throws(FCMRefusal) {
        let options = owner?.member("fcm_options", or: "fcmOptions")
        guard let label = options?.member("analytics_label", or: "analyticsLabel")?.string else { return }
        guard label.utf8.count <= 50, FCMText.isLabel(label) else {
            throw .invalid("Invalid analytics label", field: "\(path).fcm_options.analytics_label")
        }
    }

    private static func checkAndroid(_ android: JSONValue) throws(FCMRefusal) {
        if let ttl = android.member("ttl")?.string, let seconds = FCMText.seconds(ofDuration: ttl) {
            guard seconds >= 0, seconds <= self.maximumTimeToLive else {
                throw .invalid("Invalid ttl: out of range 0..2419200 seconds", field: "message.android.ttl")
            }
        }
        guard let notification = android.member("notification") else { return }
        if let color = notification.member("color")?.string, !FCMText.isColor(color) {
            throw .invalid("Invalid color, expected #rrggbb", field: "message.android.notification.color")
        }
        for kind in ["title", "body"] {
            let hasArguments = notification.member("\(kind)_loc_args", or: "\(kind)LocArgs") != nil
            guard !hasArguments || notification.member("\(kind)_loc_key", or: "\(kind)LocKey") != nil else {
                throw .invalid(
                    "\(kind)_loc_args without \(kind)_loc_key", field: "message.android.notification.\(kind)_loc_args")
            }
        }
    }

    private static func checkAPNS(_ apns: JSONValue, limit: Int) throws(FCMRefusal) {
        for header in apns.member("headers")?.object ?? [] {
            let value = header.value.string ?? ""
            let isValid =
                switch header.key.lowercased() {
                case "apns-priority": ["1", "5", "10"].contains(value)
                case "apns-push-type": APNSPushType(rawValue: value) != nil
                case "apns-expiration": UInt32(value) != nil
                case "apns-collapse-id": value.utf8.count <= 64
                default: true
                }
            guard isValid else {
                throw .invalid("Invalid value for \(header.key)", field: "message.apns.headers[\(header.key)]")
            }
        }
        guard let payload = apns.member("payload") else { return }
        if let aps = payload.member("aps"), aps.object == nil {
            throw .invalid("Invalid aps dictionary", field: "message.apns.payload.aps")
        }
        guard self.size(payload) <= max(limit, 4096) else { throw .invalid("APNs message is too big", field: nil) }
    }

    private static func checkWebpush(_ webpush: JSONValue) throws(FCMRefusal) {
        let options = webpush.member("fcm_options", or: "fcmOptions")
        if let link = options?.member("link")?.string, !link.hasPrefix("https://") {
            throw .invalid("Link must be an HTTPS URL", field: "message.webpush.fcm_options.link")
        }
        for header in webpush.member("headers")?.object ?? [] where header.key.lowercased() == "ttl" {
            guard header.value.string.flatMap(UInt32.init) != nil else {
                throw .invalid("Invalid value for TTL", field: "message.webpush.headers[TTL]")
            }
        }
    }

    /// The total size of all keys and values, in bytes.
    private static func size(_ value: JSONValue?) -> Int {
        switch value {
        case .string(let text): text.utf8.count
        case .object(let members): members.reduce(0) { $0 + $1.key.utf8.count + self.size($1.value) }
        case .array(let elements): elements.reduce(0) { $0 + self.size($1) }
        case .number, .bool: 4
        case .null, nil: 0
        }
    }
}

/// A topic condition: `'a' in topics && ('b' in topics || !('c' in topics))`.
struct FCMCondition {
    private static let maximumTopics = 5
    private static let maximumDepth = 16

    private var rest: Substring
    private var topics = 0

    /// Whether the text is a valid condition with at most five topics.
    static func isValid(_ text: String) -> Bool {
        var condition = FCMCondition(rest: text[...])
        return condition.disjunction(depth: 0) && condition.rest.isEmpty && condition.topics <= Self.maximumTopics
    }

    private mutating func disjunction(depth: Int) -> Bool {
        guard depth < Self.maximumDepth, self.term(depth: depth) else { return false }
        while self.take("&&") || self.take("||") {
            guard self.term(depth: depth) else { return false }
        }
        return true
    }

    private mutating func term(depth: Int) -> Bool {
        if self.take("!") { return depth < Self.maximumDepth && self.term(depth: depth + 1) }
        if self.take("(") { return self.disjunction(depth: depth + 1) && self.take(")") }
        let quote: Character = self.rest.first == "\"" ? "\"" : "'"
        guard self.take(String(quote)), let end = self.rest.firstIndex(of: quote),
            FCMText.isLabel(self.rest[..<end])
        else { return false }
        self.rest = self.rest[self.rest.index(after: end)...]
        self.topics += 1
        return self.take("in") && self.take("topics")
    }

    private mutating func take(_ token: String) -> Bool {
        let start = self.rest.drop { $0 == " " }
        guard start.hasPrefix(token) else { return false }
        self.rest = start.dropFirst(token.count).drop { $0 == " " }
        return true
    }
}
