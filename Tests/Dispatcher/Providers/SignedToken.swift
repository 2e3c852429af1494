// Carillon · SignedToken.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Testing

/// A JSON Web Token taken apart (RFC 7515 section 3.1), without the library that made it.
struct SignedToken {
    let header: JSONValue
    let claims: JSONValue
    /// What the signature is of.
    let signed: Data
    let signature: Data

    init(_ text: some StringProtocol) throws {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        try #require(parts.count == 3)
        self.header = try JSONParser.parse(Array(try Self.bytes(parts[0])))
        self.claims = try JSONParser.parse(Array(try Self.bytes(parts[1])))
        self.signed = Data("\(parts[0]).\(parts[1])".utf8)
        self.signature = try Self.bytes(parts[2])
    }

    private static func bytes(_ text: some StringProtocol) throws -> Data {
        let plain = String(text.map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 })
        let padding = String(repeating: "=", count: (4 - plain.count % 4) % 4)
        return try #require(Data(base64Encoded: plain + padding))
    }
}
