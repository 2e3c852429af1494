// Carillon · APNSHeaders.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHPACK

/// The request headers that APNs reads, gathered in one pass, and the rules for their values.
struct APNSHeaders {
    private(set) var authorization: String?
    private(set) var identifier: String?
    private var topic: String?
    private var pushType: String?
    private var priority: String?
    private var expiration: String?
    private var collapseIdentifier: String?
    private var hasDuplicates = false

    init(_ headers: HPACKHeaders) {
        for (name, value, _) in headers {
            switch name {
            case "authorization": self.set(\.authorization, value)
            case "apns-id": self.set(\.identifier, value)
            case "apns-topic": self.set(\.topic, value)
            case "apns-push-type": self.set(\.pushType, value)
            case "apns-priority": self.set(\.priority, value)
            case "apns-expiration": self.set(\.expiration, value)
            case "apns-collapse-id": self.set(\.collapseIdentifier, value)
            default: break
            }
        }
    }

    private mutating func set(_ field: WritableKeyPath<APNSHeaders, String?>, _ value: String) {
        if self[keyPath: field] != nil { self.hasDuplicates = true }
        self[keyPath: field] = value
    }

    /// Checks every value; returns the push type, an alert where none is named.
    func check() throws(APNSRefusal) -> APNSPushType {
        if self.hasDuplicates { throw APNSRefusal(.duplicateHeaders) }
        if let identifier, !Self.isUUID(identifier) { throw APNSRefusal(.badMessageID) }
        // Seconds: a time in milliseconds does not fit.
        if let expiration, UInt32(expiration) == nil { throw APNSRefusal(.badExpirationDate) }
        if let collapseIdentifier, collapseIdentifier.utf8.count > 64 { throw APNSRefusal(.badCollapseID) }
        let type = self.pushType.map(APNSPushType.init(rawValue:)) ?? .alert
        guard let type else { throw APNSRefusal(.invalidPushType) }
        switch self.priority {
        case nil, "5": break
        case "1", "10":
            if type == .background { throw APNSRefusal(.badPriority) }
        default: throw APNSRefusal(.badPriority)
        }
        try self.checkTopic(type)
        return type
    }

    private func checkTopic(_ type: APNSPushType) throws(APNSRefusal) {
        guard let topic else { throw APNSRefusal(.missingTopic) }
        let isName = topic.utf8.allSatisfy { byte in
            (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7A || byte >= 0x30 && byte <= 0x39 || byte == 0x2D
                || byte == 0x2E
        }
        guard isName, !topic.isEmpty, topic.utf8.count <= 255 else { throw APNSRefusal(.badTopic) }
        if let suffix = type.topicSuffix, !topic.hasSuffix(suffix) { throw APNSRefusal(.topicDisallowed) }
    }

    private static func isUUID(_ text: String) -> Bool {
        guard text.utf8.count == 36 else { return false }
        for (index, byte) in text.utf8.enumerated() {
            switch index {
            case 8, 13, 18, 23:
                guard byte == UInt8(ascii: "-") else { return false }
            default:
                guard APNSEndpoint.isHexDigit(byte) else { return false }
            }
        }
        return true
    }
}
