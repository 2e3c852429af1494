// Carillon · WebPushOrigins.swift
// SPDX-License-Identifier: Apache-2.0

/// The push services that subscriptions may name.
package struct WebPushOrigins: Sendable, Equatable {
    /// What is wrong with a list, in words that follow its name.
    package struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        package let description: String
    }

    /// Every service that there is.
    package static let any = WebPushOrigins(patterns: nil)

    /// Nil allows every origin.
    private let patterns: [Pattern]?

    private struct Pattern: Sendable, Equatable {
        /// Of `https://*.push.apple.com` what follows the asterisk; otherwise the whole host and port.
        let host: String
        let isWild: Bool
    }

    private init(patterns: [Pattern]?) {
        self.patterns = patterns
    }

    /// Reads origins such as `https://fcm.googleapis.com` or `https://*.push.apple.com`, with commas or spaces between them;
    /// `*` alone is any.
    package init(_ text: String) throws(Fault) {
        let words = text.lowercased().split { $0 == "," || $0 == " " }
        if words == ["*"] {
            self = .any
            return
        }
        var patterns: [Pattern] = []
        for word in words {
            guard let pattern = Self.pattern(word) else {
                throw Fault(
                    description: "must be origins such as https://fcm.googleapis.com or https://*.push.apple.com, "
                        + "with commas between them, or *")
            }
            patterns.append(pattern)
        }
        self.patterns = patterns
    }

    /// Whether a subscription's origin is among them.
    package func allows(_ origin: String) -> Bool {
        guard let patterns else { return true }
        let host = origin.dropFirst("https://".count)
        return patterns.contains { $0.isWild ? host.hasSuffix($0.host) && host.count > $0.host.count : host == $0.host }
    }

    private static func pattern(_ word: Substring) -> Pattern? {
        guard word.hasPrefix("https://") else { return nil }
        var host = word.dropFirst("https://".count)
        if host.hasSuffix(":443") { host = host.dropLast(4) }
        let isWild = host.hasPrefix("*.")
        if isWild { host = host.dropFirst() }
        let isHost = host.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"/?#@*\\".utf8.contains($0) }
        return isHost && host.utf8.count > 1 ? Pattern(host: String(host), isWild: isWild) : nil
    }
}
