// Carillon · PercentCoding.swift
// SPDX-License-Identifier: Apache-2.0

/// Percent-encoded text of URIs (RFC 3986 section 2.1) and of forms.
package enum PercentCoding {
    /// The text that `encoded` stands for; nil where a `%` lacks its two digits or the bytes are not UTF-8.
    ///
    /// - Parameter plusIsSpace: as forms and queries have it, but not paths.
    package static func decode(_ encoded: some StringProtocol, plusIsSpace: Bool = false) -> String? {
        var bytes: [UInt8] = []
        var rest = encoded.utf8.makeIterator()
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

    /// The fields of a query or a form; nil where one cannot be read.
    package static func fields(_ encoded: some StringProtocol) -> [(name: String, value: String)]? {
        var fields: [(name: String, value: String)] = []
        for part in encoded.split(separator: "&") {
            let pair = part.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = Self.decode(pair[0], plusIsSpace: true),
                let value = Self.decode(pair.count > 1 ? pair[1] : "", plusIsSpace: true)
            else { return nil }
            fields.append((name, value))
        }
        return fields
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
