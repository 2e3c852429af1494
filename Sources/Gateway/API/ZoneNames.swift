// Carillon · ZoneNames.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials

/// The time zones that the machine's zoneinfo knows.
enum ZoneNames {
    private static let folder = "/usr/share/zoneinfo"

    /// Whether `name` is a zone of the IANA database, aliases included.
    static func isKnown(_ name: String) -> Bool {
        let isPlain = name.utf8.allSatisfy { byte in
            Character(Unicode.Scalar(byte)).isLetter || (0x30...0x39).contains(byte)
                || [UInt8(ascii: "/"), UInt8(ascii: "_"), UInt8(ascii: "-"), UInt8(ascii: "+")].contains(byte)
        }
        guard isPlain, !name.hasPrefix("/"), !name.hasPrefix("posix"), !name.hasPrefix("right") else { return false }
        // RFC 8536: a zone's file begins with "TZif".
        return FileManager.default.contents(atPath: "\(Self.folder)/\(name)")?.prefix(4) == Data("TZif".utf8)
    }
}
