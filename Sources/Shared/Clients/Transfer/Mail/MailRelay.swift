// Carillon · MailRelay.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The address and login of a mail relay, read from a URL: `smtp://user:password@host:587` or
/// `smtps://…:465`.
///
/// `smtp` starts in clear text and requires STARTTLS before anything is sent; `smtps` starts with
/// TLS. A path, if given, is the name sent in EHLO.
package struct MailRelay: Sendable, CustomStringConvertible {
    private static let form = "must be smtp://user:password@host:587 or smtps://user:password@host:465"

    /// The URL without the login.
    package let url: String
    let user: String?
    let password: String?

    /// Reads a URL with percent-encoded user and password.
    ///
    /// - Parameter password: the password as is, if the URL names only the user.
    /// - Throws: `FieldFault`, which quotes nothing of the URL.
    package init(url text: String, password: String? = nil) throws(FieldFault) {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw FieldFault("must be ASCII without spaces; percent-encode other characters")
        }
        guard let end = text.firstRange(of: "://") else { throw FieldFault(Self.form) }
        let scheme = text[..<end.lowerBound].lowercased()
        guard scheme == "smtp" || scheme == "smtps" else { throw FieldFault(Self.form) }
        let rest = text[end.upperBound...]
        guard !rest.contains(where: { $0 == "?" || $0 == "#" }) else {
            throw FieldFault("must have no query or fragment; encode ? as %3F and # as %23")
        }
        let authority = rest.prefix { $0 != "/" }
        let path = rest.dropFirst(authority.count).drop { $0 == "/" }
        // Else the start of such a password would be taken for a port.
        guard !path.contains("@") else {
            throw FieldFault(
                "has a / before the @; write it as %2F, or give the password in SMTP_PASSWORD_FILE "
                    + "(password_file in APPS)")
        }
        let login = authority.lastIndex(of: "@").map { authority[..<$0] }
        let server = login.map { authority[authority.index(after: $0.endIndex)...] } ?? authority
        if let password {
            self.user = try Self.user(login)
            self.password = password
        } else {
            (self.user, self.password) = try Self.login(login)
        }
        let (host, port) = try Self.hostAndPort(server, defaultPort: scheme == "smtp" ? 587 : 465)
        guard path.utf8.allSatisfy({ Self.isName($0) || $0 == UInt8(ascii: "[") || $0 == UInt8(ascii: "]") }) else {
            throw FieldFault("has a path that is not a host name; the path is sent in EHLO")
        }
        self.url = "\(scheme)://\(host):\(port)/\(path)"
    }

    package var description: String { self.url }

    private static func login(_ text: Substring?) throws(FieldFault) -> (user: String?, password: String?) {
        guard let text else { return (nil, nil) }
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let user = Self.decode(parts[0]), let password = Self.decode(parts[1]), !user.isEmpty
        else {
            throw FieldFault("must have user:password before the @, both percent-encoded, or no login")
        }
        return (user, password)
    }

    private static func user(_ text: Substring?) throws(FieldFault) -> String {
        guard let text, !text.contains(":"), let user = Self.decode(text), !user.isEmpty else {
            throw FieldFault("must have only the user before the @, percent-encoded; the password is in a file")
        }
        return user
    }

    private static func hostAndPort(
        _ text: Substring,
        defaultPort: Int
    ) throws(FieldFault) -> (host: Substring, port: Int) {
        var host = text
        var port = defaultPort
        let isLiteral = text.first == "["
        // The colons inside brackets belong to an IPv6 address.
        let tail = isLiteral ? text.drop { $0 != "]" }.dropFirst() : text.drop { $0 != ":" }
        if !tail.isEmpty {
            guard tail.first == ":", let number = Int(tail.dropFirst()), (1...65_535).contains(number) else {
                throw FieldFault("has a port outside 1 to 65535")
            }
            port = number
            host = text.dropLast(tail.count)
        }
        let name = isLiteral ? host.dropFirst().dropLast() : host
        guard !name.isEmpty, name.utf8.allSatisfy({ Self.isName($0) }), !isLiteral || host.last == "]" else {
            throw FieldFault(Self.form)
        }
        return (host, port)
    }

    private static func isName(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"): true
        default: ".-:".utf8.contains(byte)
        }
    }

    /// Decodes percent-encoding; nil if it is invalid or yields a NUL or a line break.
    private static func decode(_ encoded: Substring) -> String? {
        guard let text = PercentCoding.decode(encoded) else { return nil }
        let isClean = text.utf8.allSatisfy { $0 != 0 && $0 != UInt8(ascii: "\r") && $0 != UInt8(ascii: "\n") }
        return isClean ? text : nil
    }
}
