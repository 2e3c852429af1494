// Carillon · EmailAddress.swift
// SPDX-License-Identifier: Apache-2.0

/// A bare address such as `ada@example.com`, safe in SMTP commands and headers.
package struct EmailAddress: Sendable, Equatable, CustomStringConvertible {
    private static let longest = 254
    private static let longestLocalPart = 64

    private let localPart: Substring
    package let domain: Substring

    /// Returns nil unless the text is an ASCII address; rejects quoted local parts, comments and
    /// anything that could end a header line.
    package init?(_ text: String) {
        guard text.utf8.count <= Self.longest, let at = text.lastIndex(of: "@") else { return nil }
        let localPart = text[..<at]
        let domain = text[text.index(after: at)...]
        guard !localPart.isEmpty, localPart.utf8.count <= Self.longestLocalPart, !domain.isEmpty,
            !localPart.contains("@"), text.utf8.allSatisfy({ Self.isAllowed($0) }),
            [localPart, domain].allSatisfy({ $0.first != "." && $0.last != "." && !$0.contains("..") })
        else { return nil }
        self.localPart = localPart
        self.domain = domain
    }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte < 0x7F && !"<>,;:\"()[]\\".utf8.contains(byte)
    }

    package var description: String { "\(self.localPart)@\(self.domain)" }
}
