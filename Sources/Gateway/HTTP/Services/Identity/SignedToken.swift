// Carillon · SignedToken.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A JSON Web Token in its compact form (RFC 7515 section 7.1), taken apart and not yet believed.
struct SignedToken {
    enum Algorithm: Equatable {
        case hs256
        case keySet(VerificationKey.Algorithm)
    }

    private static let longest = 8_192

    let algorithm: Algorithm
    let kid: String?
    let claims: JSONValue
    /// What the signature is over: the first two parts with the dot between them.
    let signed: [UInt8]
    let signature: [UInt8]

    /// Takes a token apart; JSON that is not strict, such as a name that occurs twice, is refused.
    init(_ text: String) throws(TokenFault) {
        guard text.utf8.count <= Self.longest else { throw TokenFault("the token is too long") }
        let bytes = Array(text.utf8)
        let parts = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Self.object(parts[0]), let claims = Self.object(parts[1]),
            let signature = Base64URL.decode(parts[2])
        else { throw TokenFault("the token is not a JSON Web Token") }
        // No extension is understood here, and what is critical must be understood (RFC 7515 section 4.1.11).
        guard header["crit"] == nil else { throw TokenFault("the token's critical header is not understood") }
        switch header["alg"]?.string {
        case "HS256": self.algorithm = .hs256
        case "RS256": self.algorithm = .keySet(.rs256)
        case "ES256": self.algorithm = .keySet(.es256)
        default: throw TokenFault("the token's algorithm is not accepted")
        }
        switch header["kid"] {
        case nil: self.kid = nil
        case .string(let text): self.kid = text
        default: throw TokenFault("the token's kid is no text")
        }
        self.claims = claims
        self.signed = Array(bytes[..<parts[1].endIndex])
        self.signature = signature
    }

    private static func object(_ part: ArraySlice<UInt8>) -> JSONValue? {
        guard let bytes = Base64URL.decode(part), let value = try? JSONParser.parse(bytes), value.object != nil else {
            return nil
        }
        return value
    }
}
