// Carillon · SignalRQuery.swift
// SPDX-License-Identifier: Apache-2.0

/// A query string; names count whatever their case, as in ASP.NET.
package struct SignalRQuery: Sendable, Equatable {
    private var values: [String: String] = [:]

    /// Reads `name=value&…`, without the question mark.
    ///
    /// Of a name that occurs twice the first counts. An escape that is not one, or does not give UTF-8, stays as it is.
    package init(_ query: some StringProtocol) {
        for pair in query.utf8.split(separator: UInt8(ascii: "&")) {
            let parts = pair.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            let name = Self.decode(Array(parts[0])).lowercased()
            guard !name.isEmpty, self.values[name] == nil else { continue }
            self.values[name] = parts.count > 1 ? Self.decode(Array(parts[1])) : ""
        }
    }

    /// Reads the query of a request's target.
    package init(target: String) {
        let parts = target.utf8.split(separator: UInt8(ascii: "?"), maxSplits: 1, omittingEmptySubsequences: false)
        self.init(parts.count > 1 ? Substring(parts[1]) : "")
    }

    package subscript(_ name: String) -> String? {
        self.values[name.lowercased()]
    }

    private static func decode(_ bytes: [UInt8]) -> String {
        var decoded: [UInt8] = []
        decoded.reserveCapacity(bytes.count)
        var index = 0
        while index < bytes.count {
            let byte = bytes[index]
            if byte == UInt8(ascii: "%"), index + 2 < bytes.count, let high = Self.digit(bytes[index + 1]),
                let low = Self.digit(bytes[index + 2])
            {
                decoded.append(high << 4 | low)
                index += 3
            } else {
                decoded.append(byte == UInt8(ascii: "+") ? UInt8(ascii: " ") : byte)
                index += 1
            }
        }
        return String(validating: decoded, as: UTF8.self) ?? String(decoding: bytes, as: UTF8.self)
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
