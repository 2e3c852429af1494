// Carillon · PlatformFields.swift
// SPDX-License-Identifier: Apache-2.0

/// The members that a job's `platform` may have, by provider.
///
/// The dispatcher reads exactly these names; a member that would have no effect is refused.
package enum PlatformFields {
    /// Names under `apns` for members of `aps`, which Apple writes with hyphens.
    package static let aps: Set = [
        "thread_id", "interruption_level", "relevance_score", "category", "target_content_id", "filter_criteria",
        "sound",
    ]
    /// Boolean members of `aps`, which Apple writes as 1.
    package static let apsSwitches: Set = ["mutable_content", "content_available"]
    /// Members of the alert within `aps`.
    package static let apsAlert: Set = [
        "subtitle", "launch_image", "title_loc_key", "title_loc_args", "subtitle_loc_key",
        "subtitle_loc_args", "loc_key", "loc_args",
    ]
    package static let apnsPriorities: Set<Int64> = [1, 5, 10]
    /// Names under `fcm` for members of Android's notification.
    package static let android: Set = [
        "channel_id", "click_action", "icon", "color", "tag", "ticker", "title_loc_key", "title_loc_args",
        "body_loc_key", "body_loc_args", "notification_priority", "visibility",
    ]
    /// Blocks of an FCM message.
    package static let fcmBlocks: Set = ["android", "apns", "webpush", "fcm_options", "notification"]
    package static let urgencies = ["very-low", "low", "normal", "high"]

    private enum Kind {
        case any, text, address, object, flag
        case choice([String])
        case number(Set<Int64>)

        var rule: String {
            switch self {
            case .any: ""
            case .text: "must be text"
            case .address: "must be an ASCII address such as help@example.com, without a name"
            case .object: "must be a JSON object"
            case .flag: "must be true, false, 1 or 0"
            case .choice(let words): "must be one of " + words.joined(separator: ", ")
            case .number(let numbers): "must be one of " + numbers.sorted().map(String.init).joined(separator: ", ")
            }
        }

        /// Null removes a member, so it fits every kind.
        func fits(_ value: JSONValue) -> Bool {
            if value == .null { return true }
            return switch self {
            case .any: true
            case .text: value.string != nil
            case .address: value.string.flatMap { EmailAddress($0) } != nil
            case .object: value.object != nil
            case .flag: value.isOn != nil
            case .choice(let words): value.string.map { words.contains($0) } ?? false
            case .number(let numbers): value.integer.map { numbers.contains($0) } ?? false
            }
        }
    }

    private static let apnsKinds: [String: Kind] = Self.kinds([
        (Self.aps, .any), (Self.apsSwitches, .flag), (Self.apsAlert, .any), (["aps"], .object),
        (["push_type"], .choice(["alert", "background"])), (["priority"], .number(Self.apnsPriorities)),
    ])
    private static let fcmKinds: [String: Kind] = Self.kinds([(Self.android, .any), (Self.fcmBlocks, .object)])
    private static let webPushKinds: [String: Kind] = [
        "urgency": .choice(Self.urgencies), "options": .object,
    ]
    private static let emailKinds: [String: Kind] = Self.kinds([
        (["subject", "text", "html"], .text), (["reply_to"], .address),
    ])

    private static func kinds(_ groups: [(Set<String>, Kind)]) -> [String: Kind] {
        groups.reduce(into: [:]) { kinds, group in
            for name in group.0 { kinds[name] = group.1 }
        }
    }

    /// The members of a well-known provider.
    private static func kinds(of provider: Provider) -> [String: Kind] {
        switch provider {
        case .apns: self.apnsKinds
        case .fcm: self.fcmKinds
        case .webpush: self.webPushKinds
        case .email: self.emailKinds
        default: [:]
        }
    }

    /// The most faults reported; more would only repeat the first ones.
    private static let mostFaults = 16

    /// Returns the first ``mostFaults`` faults by path: unknown members and unsuitable values.
    ///
    /// - Parameter platform: a JSON object.
    static func faults(_ platform: JSONValue) -> [JobFault] {
        var faults: [JobFault] = []
        for member in platform.object ?? [] where member.value != .null {
            let path = "platform.\(member.key)"
            guard let provider = Provider.all.first(where: { $0.rawValue == member.key }) else {
                let known = Provider.all.map(\.rawValue).joined(separator: ", ")
                faults.append(JobFault(path, "is not a provider; give one of \(known)"))
                continue
            }
            guard let fields = member.value.object else {
                faults.append(JobFault(path, "must be a JSON object"))
                continue
            }
            let kinds = self.kinds(of: provider)
            for field in fields where faults.count < self.mostFaults {
                guard let kind = kinds[field.key] else {
                    let known = kinds.keys.sorted().joined(separator: ", ")
                    let advice = known.isEmpty ? "nothing can be set for \(provider)" : "give one of \(known)"
                    faults.append(JobFault("\(path).\(field.key)", "is not a member here; \(advice)"))
                    continue
                }
                if !kind.fits(field.value) { faults.append(JobFault("\(path).\(field.key)", kind.rule)) }
            }
        }
        return Array(faults.prefix(self.mostFaults))
    }
}

extension JSONValue {
    /// A flag as JSON or as Apple writes it: true and 1, false and 0.
    package var isOn: Bool? {
        switch self.integer {
        case 1: true
        case 0: false
        default: self.bool
        }
    }
}

/// The rules for texts that clients use as a link or an image.
enum LinkRule {
    /// Schemes that run code or show embedded or local content instead of opening a page or an app.
    private static let refusedSchemes: Set = ["javascript", "vbscript", "data", "blob", "file"]

    /// Returns why a text is not a link (a path in the app, or a URL to open); nil if it is.
    static func fault(ofLink text: String) -> String? {
        if text.first == " " || text.last == " " || !self.isPrintable(text) {
            return "must be a URL without control characters, and without blanks at its ends"
        }
        if let scheme = self.scheme(of: text), self.refusedSchemes.contains(scheme) {
            return "must not be a \(scheme): URL; give a path, an https:// URL or a link into the app"
        }
        return nil
    }

    /// Returns why a text is not an image address that a device can fetch; nil if it is.
    static func fault(ofImage text: String) -> String? {
        let head = text.prefix(8).lowercased()
        let rest =
            head.hasPrefix("https://") ? text.dropFirst(8) : head.hasPrefix("http://") ? text.dropFirst(7) : nil
        let host = rest?.prefix { !"/?#".contains($0) } ?? ""
        let isAddress = !host.isEmpty && !host.hasPrefix(":") && self.isPrintable(text) && !text.contains(" ")
        return isAddress ? nil : "must be an https:// URL (or http://) that the device can fetch"
    }

    /// Browsers skip control characters, even within a scheme, and leading blanks.
    private static func isPrintable(_ text: String) -> Bool {
        text.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) }
    }

    /// The scheme in lower case (RFC 3986 section 3.1); nil for a relative reference.
    private static func scheme(of text: String) -> String? {
        guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")) else { return nil }
        let scheme = text[..<colon].lowercased()
        guard let first = scheme.utf8.first, (0x61...0x7A).contains(first),
            scheme.utf8.allSatisfy({
                (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || "+-.".utf8.contains($0)
            })
        else { return nil }
        return scheme
    }
}
