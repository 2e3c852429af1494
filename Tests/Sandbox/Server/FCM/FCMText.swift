// Carillon · FCMText.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The forms of text in FCM's fields.
enum FCMText {
    /// The seconds of a proto3 duration such as `3.5s`; `nil` if it is none.
    static func seconds(ofDuration text: String) -> Double? {
        guard text.utf8.last == UInt8(ascii: "s") else { return nil }
        let number = text.dropLast()
        let parts = number.split(separator: ".", omittingEmptySubsequences: false)
        let digits = parts.first?.hasPrefix("-") == true ? parts[0].dropFirst() : parts.first ?? ""
        guard parts.count <= 2, Self.isDigits(digits), parts.count == 1 || Self.isDigits(parts[1]),
            parts.count == 1 || parts[1].utf8.count <= 9
        else { return nil }
        return Double(number)
    }

    /// RFC 3339 in UTC, with or without fractions.
    static func isTimestamp(_ text: String) -> Bool {
        (try? Date.ISO8601FormatStyle(includingFractionalSeconds: true).parse(text)) != nil
            || (try? Date.ISO8601FormatStyle().parse(text)) != nil
    }

    /// `[a-zA-Z0-9-_.~%]+`: topics, and labels with their own length.
    static func isLabel(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { Self.isAlphanumeric($0) || "-_.~%".utf8.contains($0) }
    }

    /// What a registration token or installation id is made of.
    static func isToken(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.count <= 4096
            && text.utf8.allSatisfy { Self.isAlphanumeric($0) || "-_:.".utf8.contains($0) }
    }

    /// `#rrggbb`.
    static func isColor(_ text: String) -> Bool {
        text.utf8.count == 7 && text.utf8.first == UInt8(ascii: "#") && text.dropFirst().allSatisfy(\.isHexDigit)
    }

    /// How Google's errors repeat a wrong value.
    static func shown(_ value: JSONValue) -> String {
        switch value {
        case .null: ", null"
        case .bool(let flag): ", \(flag)"
        case .number(let number): ", \(Int(exactly: number).map(String.init) ?? String(number))"
        case .string(let text): ", \"\(text)\""
        case .array, .object: ""
        }
    }

    private static func isDigits(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
    }

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: false
        }
    }
}
