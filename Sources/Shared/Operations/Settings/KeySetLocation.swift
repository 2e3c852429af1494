// Carillon · KeySetLocation.swift
// SPDX-License-Identifier: Apache-2.0

/// Where a key set lies.
package enum KeySetLocation: Sendable, Equatable {
    case file(String)
    case url(String)

    /// Reads a path, or an absolute URL: `https`, or `http` if its host is this machine.
    init(_ text: String) throws(Complaint) {
        guard let colon = text.firstIndex(of: ":"), text[colon...].hasPrefix("://") else {
            self = .file(text)
            return
        }
        let rest = text[text.index(colon, offsetBy: 3)...]
        let authority = rest.prefix { !"/?#".contains($0) }
        guard !authority.isEmpty, !authority.contains("@"), !authority.contains("\\"),
            text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
        else { throw Complaint("must be a path or a URL with a host and without credentials") }
        switch text[..<colon].lowercased() {
        case "https": break
        case "http" where Self.isLoopback(authority): break
        case "http": throw Complaint("must be https; http is for this machine only")
        default: throw Complaint("must be a path or an https URL")
        }
        self = .url(text)
    }

    /// Whether an authority (RFC 3986 section 3.2) names this machine.
    private static func isLoopback(_ authority: Substring) -> Bool {
        if authority.hasPrefix("[") { return authority.hasPrefix("[::1]") }
        let host = authority.prefix { $0 != ":" }.lowercased()
        if host == "localhost" { return true }
        let numbers = host.split(separator: ".", omittingEmptySubsequences: false)
        return numbers.count == 4 && numbers[0] == "127" && numbers.allSatisfy { UInt8($0) != nil }
    }
}
