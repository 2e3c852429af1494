// Carillon · AuthorizationHeader.swift
// SPDX-License-Identifier: Apache-2.0

/// The `Authorization` field of a request (RFC 9110 section 11.6.2).
package enum AuthorizationHeader {
    /// Returns the credential that follows a field's scheme and any number of spaces; nil if the
    /// field has another scheme or no credential.
    ///
    /// - Parameter scheme: the expected scheme in lower case; the field may have it in any case.
    package static func credential(_ field: String, of scheme: String) -> String? {
        let space = UInt8(ascii: " ")
        let name = Substring(field.utf8.prefix { $0 != space })
        guard name.lowercased() == scheme else { return nil }
        let credential = Substring(field.utf8[name.endIndex...].drop { $0 == space })
        return credential.isEmpty ? nil : String(credential)
    }
}
