// Carillon · Provider.swift
// SPDX-License-Identifier: Apache-2.0

/// A service that delivers to devices, by its word.
///
/// The word is part of Redis keys, of metrics, and of lines whose parts a space divides. Up to 15 bytes lie in the text
/// itself, so that a copy costs nothing.
package struct Provider: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    package static let fcm = Self(word: "fcm")
    package static let apns = Self(word: "apns")
    package static let webpush = Self(word: "webpush")
    package static let email = Self(word: "email")
    package static let webhook = Self(word: "webhook")

    /// Those that everybody knows; others are known where a dispatcher has announced them.
    package static let wellKnown = [Self.fcm, .apns, .webpush, .email, .webhook]

    private static let lengths = 1...15

    package let rawValue: String

    /// Nil unless the word has 1 to 15 of `a` to `z` and `0` to `9`, a letter first.
    package init?(rawValue: String) {
        let bytes = rawValue.utf8
        guard Self.lengths.contains(bytes.count), bytes.first.map(Self.isLetter) == true,
            bytes.allSatisfy({ Self.isLetter($0) || (0x30...0x39).contains($0) })
        else { return nil }
        self.rawValue = rawValue
    }

    /// The word of a provider that is built in.
    ///
    /// It stands in the source, so no input reaches this: one against the rule is a slip of the pen, and ends the first
    /// test that meets it.
    package init(word: StaticString) {
        guard let provider = Self(rawValue: "\(word)") else { preconditionFailure("\(word) names no provider") }
        self = provider
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte) }

    package var description: String { self.rawValue }

    /// Whether devices are registered with it; an e-mail address is none.
    package var isOfDevices: Bool { self != .email }
}

/// What a device runs.
package enum Platform: String, Sendable, CaseIterable {
    case ios, android, web
    /// A program of somebody's own, which is told by HTTP.
    case webhook

    /// The provider of a device that names none.
    package var provider: Provider {
        switch self {
        case .ios: .apns
        case .android: .fcm
        case .web: .webpush
        case .webhook: .webhook
        }
    }
}

/// Which of Apple's two services a token belongs to.
package enum ProviderEnvironment: String, Sendable, CaseIterable {
    case production, sandbox
}
