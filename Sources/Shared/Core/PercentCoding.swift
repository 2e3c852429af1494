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
                guard let high = rest.next().flatMap(Self.digit), let low = rest.next().flatMap(Self.digit) else {
                    return nil
                }
                bytes.append(high << 4 | low)
            case UInt8(ascii: "+") where plusIsSpace: bytes.append(UInt8(ascii: " "))
            default: bytes.append(byte)
            }
        }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
