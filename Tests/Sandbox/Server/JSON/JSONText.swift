// Carillon · JSONText.swift
// SPDX-License-Identifier: Apache-2.0

/// Writing JSON by hand, where the order of members and the exact bytes matter.
enum JSONText {
    /// The text in quotes, with what RFC 8259 section 7 wants escaped.
    static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": quoted += "\\\""
            case "\\": quoted += "\\\\"
            case "\n": quoted += "\\n"
            case "\r": quoted += "\\r"
            case "\t": quoted += "\\t"
            case "\u{0}"..<"\u{20}":
                let code = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - code.count) + code
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }

    /// An object of strings, in the order given.
    static func object(_ members: some Sequence<(String, String)>) -> String {
        "{" + members.map { Self.quoted($0.0) + ":" + Self.quoted($0.1) }.joined(separator: ",") + "}"
    }

    /// An object of counts, by name.
    static func object(_ counts: [String: Int]) -> String {
        let members = counts.sorted { $0.key < $1.key }.map { "\(Self.quoted($0.key)):\($0.value)" }
        return "{" + members.joined(separator: ",") + "}"
    }
}
