// Carillon · EngineIOQuery.swift
// SPDX-License-Identifier: Apache-2.0

/// The query of a request to the protocol's path.
///
/// Of a name that occurs twice the first counts. An empty `sid` is none.
package struct EngineIOQuery: Sendable, Equatable {
    package struct Parameter: Sendable, Equatable {
        package let name: String
        package let value: String

        package init(_ name: String, _ value: String) {
            self.name = name
            self.value = value
        }
    }

    /// `EIO`: the protocol's version.
    package private(set) var version: String?
    package private(set) var transport: String?
    package private(set) var sid: String?
    /// The application's own, in their order; the cache buster `t` and what belongs to version 3 (`j`, `b64`) left out.
    package private(set) var parameters: [Parameter] = []

    /// Reads the part of a URL after the question mark.
    ///
    /// Escapes that are none stay as they are, bytes that are not UTF-8 become U+FFFD.
    package init(_ query: some StringProtocol) {
        for field in query.utf8.split(separator: UInt8(ascii: "&")) {
            let parts = field.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
            self.take(Parameter(Self.decoded(parts[0]), parts.count > 1 ? Self.decoded(parts[1]) : ""))
        }
    }

    private mutating func take(_ parameter: Parameter) {
        switch parameter.name {
        case "EIO": self.version = self.version ?? parameter.value
        case "transport": self.transport = self.transport ?? parameter.value
        case "sid": if self.sid == nil, !parameter.value.isEmpty { self.sid = parameter.value }
        case "t", "j", "b64": break
        default: self.parameters.append(parameter)
        }
    }

    private static func decoded(_ text: some Collection<UInt8>) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text)[...]
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "+"): bytes.append(0x20)
            case UInt8(ascii: "%"):
                let digits = rest.prefix(2).compactMap { Self.digit($0) }
                if digits.count == 2 {
                    bytes.append(digits[0] << 4 | digits[1])
                    rest = rest.dropFirst(2)
                } else {
                    bytes.append(byte)
                }
            default: bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
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
