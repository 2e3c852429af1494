// Carillon · CookieRules.swift
// SPDX-License-Identifier: Apache-2.0

/// Which cookie holds a token, and for which pages it counts.
///
/// A browser adds a cookie to whatever any page asks for; so what a page must not be able to do in its visitor's name is
/// done only if the browser says that the page is one of ours.
package struct CookieRules: Sendable {
    private let name: String
    private let allowedOrigins: Set<String>

    /// - Parameter allowedOrigins: such as `https://app.example.com`, compared in lower case.
    package init(name: String, allowedOrigins: [String]) {
        self.name = name
        self.allowedOrigins = Set(allowedOrigins.map { $0.lowercased() })
    }

    /// The cookie's value; nil if there is none.
    ///
    /// - Throws: ``TokenFault`` if there are two, since nobody knows who has set which, or if the request's origin does not
    ///   allow its use.
    func token(_ presented: PresentedCredentials) throws(TokenFault) -> String? {
        var values: [String] = []
        for pair in presented.cookies.flatMap({ $0.split(separator: ";") }) {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, Self.trimmed(parts[0]).utf8.elementsEqual(self.name.utf8) else { continue }
            var value = Self.trimmed(parts[1])
            if value.count >= 2, value.hasPrefix("\""), value.hasSuffix("\"") { value = value.dropFirst().dropLast() }
            values.append(String(value))
        }
        guard let value = values.first else { return nil }
        guard values.count == 1 else { throw TokenFault("the cookie occurs more than once") }
        guard self.isAllowed(presented) else {
            throw TokenFault(.forbidden, "the cookie does not count for requests of this origin")
        }
        return value
    }

    private func isAllowed(_ presented: PresentedCredentials) -> Bool {
        if let origin = presented.origin { return self.allowedOrigins.contains(origin.lowercased()) }
        switch presented.fetchSite?.lowercased() {
        case "same-origin": return true
        // An address that the user typed; or no browser, or a very old one.
        case "none", nil: return !presented.isUnsafe
        default: return false
        }
    }

    private static func trimmed(_ text: Substring) -> Substring {
        let isBlank = { (character: Character) in character == " " || character == "\t" }
        let start = text.drop(while: isBlank)
        guard let end = start.lastIndex(where: { !isBlank($0) }) else { return start.prefix(0) }
        return start[...end]
    }
}
