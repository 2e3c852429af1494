// Carillon · JSONWebToken.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import _CryptoExtras

/// A parsed but unverified JWS in compact form (RFC 7515).
struct JSONWebToken {
    let header: JSONValue
    let claims: JSONValue
    private let signedPart: Data
    private let signature: Data

    /// Fails unless the text has three base64url parts, the first two JSON objects.
    init?(_ text: some StringProtocol) {
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Self.decode(parts[0]), let claims = Self.decode(parts[1]),
            let signature = Self.decode(parts[2]), let headerValue = try? JSONParser.parse(header),
            let claimsValue = try? JSONParser.parse(claims), headerValue.object != nil, claimsValue.object != nil
        else { return nil }
        self.header = headerValue
        self.claims = claimsValue
        self.signedPart = Data(text.utf8.dropLast(parts[2].count + 1))
        self.signature = Data(signature)
    }

    /// Verifies RS256 (RFC 7518 section 3.3).
    func isSigned(by key: _RSA.Signing.PublicKey) -> Bool {
        guard self.header.member("alg")?.string == "RS256" else { return false }
        let signature = _RSA.Signing.RSASignature(rawRepresentation: self.signature)
        return key.isValidSignature(
            signature, for: SHA256.hash(data: self.signedPart), padding: .insecurePKCS1v1_5)
    }

    /// Verifies ES256 (RFC 7518 section 3.4): the signature is r and s, 32 bytes each.
    func isSigned(by key: P256.Signing.PublicKey) -> Bool {
        guard self.header.member("alg")?.string == "ES256",
            let signature = try? P256.Signing.ECDSASignature(rawRepresentation: self.signature)
        else { return false }
        return key.isValidSignature(signature, for: SHA256.hash(data: self.signedPart))
    }

    /// Decodes base64url without padding (RFC 7515 section 2).
    static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count * 3 / 4)
        var bits: UInt32 = 0
        var count = 0
        for character in text {
            let value: UInt8
            switch character {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = character - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = character - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = character - UInt8(ascii: "0") + 52
            case UInt8(ascii: "-"): value = 62
            case UInt8(ascii: "_"): value = 63
            default: return nil
            }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
        }
        return text.count % 4 == 1 ? nil : bytes
    }
}
