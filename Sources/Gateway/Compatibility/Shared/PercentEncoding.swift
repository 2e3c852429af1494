// Carillon · PercentEncoding.swift
// SPDX-License-Identifier: Apache-2.0

/// Percent-encoded text (RFC 3986 section 2.1), and forms made of it.
enum PercentEncoding {
    /// The text behind an encoding; nil if it is malformed, not UTF-8 or holds U+0000.
    ///
    /// - Parameter isForm: whether `+` stands for a space, as in `application/x-www-form-urlencoded`.
    static func decode(_ text: some StringProtocol, isForm: Bool = false) -> String? {
        var bytes: [UInt8] = []
        var rest = Substring(text).utf8[...]
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "%"):
                guard let high = rest.popFirst().flatMap(Self.digit), let low = rest.popFirst().flatMap(Self.digit)
                else { return nil }
                bytes.append(high << 4 | low)
            case UInt8(ascii: "+") where isForm: bytes.append(UInt8(ascii: " "))
            default: bytes.append(byte)
            }
        }
        guard !bytes.contains(0) else { return nil }
        return String(validating: bytes, as: UTF8.self)
    }

    /// The fields of a form in their order; nil if it is malformed or names a field twice.
    static func form(_ text: String) -> [(name: String, value: String)]? {
        var fields: [(name: String, value: String)] = []
        for pair in text.split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = parts.first.flatMap({ Self.decode($0, isForm: true) }), !name.isEmpty,
                let value = Self.decode(parts.count > 1 ? parts[1] : "", isForm: true),
                !fields.contains(where: { $0.name == name })
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
