// Carillon · PercentCoding.swift
// SPDX-License-Identifier: Apache-2.0

/// Percent-encoding in URIs (RFC 3986 section 2.1) and forms.
package enum PercentCoding {
    /// Decodes a text; nil if a `%` lacks its two digits or the bytes are not UTF-8.
    ///
    /// - Parameter plusIsSpace: whether `+` means a space, as in forms and queries, but not in
    ///   paths.
    package static func decode(_ encoded: some StringProtocol, plusIsSpace: Bool = false) -> String? {
        var bytes: [UInt8] = []
        // A concrete type, because calls from other modules may not be specialised.
        var rest = String(encoded).utf8.makeIterator()
        while let byte = rest.next() {
            switch byte {
            case UInt8(ascii: "%"):
                guard let high = rest.next()?.hexDigit, let low = rest.next()?.hexDigit else { return nil }
                bytes.append(high << 4 | low)
            case UInt8(ascii: "+") where plusIsSpace: bytes.append(UInt8(ascii: " "))
            default: bytes.append(byte)
            }
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
