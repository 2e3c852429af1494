// Carillon · RequestQuery.swift
// SPDX-License-Identifier: Apache-2.0

/// The query of a request's target, with its values as they are decoded (RFC 3986 section 2.1).
///
/// Of a name that occurs twice the last one counts.
package struct RequestQuery: Sendable {
    private let target: String

    package init(_ target: String) {
        self.target = target
    }

    /// The value of a name; nil if it does not occur or is not UTF-8 when decoded.
    package subscript(name: String) -> String? { self.last { $0 == name } }

    /// The value of a name in whatever letter case.
    package func value(anyCase name: String) -> String? {
        let wanted = name.lowercased()
        return self.last { $0.lowercased() == wanted }
    }

    private func last(where matches: (String) -> Bool) -> String? {
        guard let start = self.target.firstIndex(of: "?") else { return nil }
        for pair in self.target[self.target.index(after: start)...].split(separator: "&").reversed() {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let name = Self.decode(parts[0]), matches(name) else { continue }
            return parts.count > 1 ? Self.decode(parts[1]) : ""
        }
        return nil
    }

    private static func decode(_ text: Substring) -> String? {
        guard text.utf8.contains(where: { $0 == UInt8(ascii: "%") || $0 == UInt8(ascii: "+") }) else {
            return String(text)
        }
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "+"): bytes.append(UInt8(ascii: " "))
            case UInt8(ascii: "%"):
                guard let high = rest.popFirst().flatMap(Self.digit), let low = rest.popFirst().flatMap(Self.digit)
                else { return nil }
                bytes.append(high << 4 | low)
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
