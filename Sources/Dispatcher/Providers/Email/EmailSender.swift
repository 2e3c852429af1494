// Carillon · EmailSender.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Who mail is from: `notices@example.com` or `Example <notices@example.com>`.
package struct EmailSender: Sendable, Equatable {
    private static let longestName = 128

    let name: String?
    let address: EmailAddress

    /// - Throws: ``CredentialFault``, in words that follow a setting's name.
    package init(_ text: String) throws(CredentialFault) {
        let form = "must be notices@example.com or Example <notices@example.com>"
        guard let bracket = text.firstIndex(of: "<") else {
            guard let address = EmailAddress(text.trimmingBlanks) else { throw CredentialFault(form) }
            (self.name, self.address) = (nil, address)
            return
        }
        let rest = text[text.index(after: bracket)...].trimmingBlanks
        guard rest.last == ">", let address = EmailAddress(String(rest.dropLast())) else { throw CredentialFault(form) }
        var name = text[..<bracket].trimmingBlanks
        if name.count >= 2, name.first == "\"", name.last == "\"" { name = String(name.dropFirst().dropLast()) }
        guard name.unicodeScalars.count <= Self.longestName,
            name.unicodeScalars.allSatisfy({ Self.isAllowed($0) })
        else { throw CredentialFault("has a name with line breaks or controls, or of more than \(Self.longestName)") }
        (self.name, self.address) = (name.isEmpty ? nil : name, address)
    }

    private static func isAllowed(_ scalar: Unicode.Scalar) -> Bool {
        let isControl = scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
        return !isControl && scalar.value != 0x2028 && scalar.value != 0x2029
    }
}

extension StringProtocol {
    /// Without the blanks at both ends.
    var trimmingBlanks: String {
        let isBlank = { (character: Character) in character == " " || character == "\t" }
        guard let first = self.firstIndex(where: { !isBlank($0) }), let last = self.lastIndex(where: { !isBlank($0) })
        else { return "" }
        return String(self[first...last])
    }
}
