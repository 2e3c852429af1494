// Carillon · VerificationKey.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import _CryptoExtras

/// A public key of a set, which checks signatures of one algorithm.
struct VerificationKey: Sendable {
    enum Algorithm: String, Sendable {
        case rs256 = "RS256"
        case es256 = "ES256"
    }

    /// Why a key of a set is passed over, in words that hold nothing of the key.
    struct Unfit: Error, Sendable {
        let reason: String

        init(_ reason: String) {
            self.reason = reason
        }
    }

    private enum Material: Sendable {
        case p256(P256.Signing.PublicKey)
        case rsa(_RSA.Signing.PublicKey)
    }

    /// In bits: shorter ones can be broken, with longer ones a signature costs too much.
    private static let sizes = 2_048...8_192

    let algorithm: Algorithm
    let kid: String?
    private let material: Material

    /// Reads a JSON Web Key (RFC 7517 section 4, RFC 7518 section 6).
    init(_ key: JSONValue) throws(Unfit) {
        guard key.object != nil else { throw Unfit("is no object") }
        switch key["kid"] {
        case nil: self.kid = nil
        case .string(let text) where (1...256).contains(text.utf8.count): self.kid = text
        default: throw Unfit("has a kid that is no text of 1 to 256 bytes")
        }
        if let use = key["use"], use.string != "sig" { throw Unfit("is not for signatures") }
        if let operations = key["key_ops"], operations.strings?.contains("verify") != true {
            throw Unfit("is not for checking signatures")
        }
        guard key["d"] == nil else { throw Unfit("is a private key") }
        let algorithm = key["alg"]
        switch key["kty"]?.string {
        case "RSA" where algorithm == nil || algorithm?.string == Algorithm.rs256.rawValue:
            self.algorithm = .rs256
            self.material = .rsa(try Self.rsa(key))
        case "EC" where algorithm == nil || algorithm?.string == Algorithm.es256.rawValue:
            self.algorithm = .es256
            self.material = .p256(try Self.p256(key))
        default: throw Unfit("is neither for RS256 nor for ES256")
        }
    }

    private static func rsa(_ key: JSONValue) throws(Unfit) -> _RSA.Signing.PublicKey {
        guard let modulus = key["n"]?.string.flatMap({ Base64URL.decode($0.utf8) }),
            let exponent = key["e"]?.string.flatMap({ Base64URL.decode($0.utf8) }),
            modulus.count * 8 <= Self.sizes.upperBound + 8
        else { throw Unfit("has no usable modulus and exponent") }
        let made = try? _RSA.Signing.PublicKey(n: modulus, e: exponent)
        guard let made, Self.sizes.contains(made.keySizeInBits) else {
            throw Unfit("is no RSA key of \(Self.sizes.lowerBound) to \(Self.sizes.upperBound) bits")
        }
        return made
    }

    private static func p256(_ key: JSONValue) throws(Unfit) -> P256.Signing.PublicKey {
        guard key["crv"]?.string == "P-256" else { throw Unfit("is not on the curve P-256") }
        guard let x = key["x"]?.string.flatMap({ Base64URL.decode($0.utf8) }), x.count == 32,
            let y = key["y"]?.string.flatMap({ Base64URL.decode($0.utf8) }), y.count == 32,
            let made = try? P256.Signing.PublicKey(rawRepresentation: x + y)
        else { throw Unfit("is no point of the curve P-256") }
        return made
    }

    /// Whether `signature` is this key's for `bytes` (RFC 7518 sections 3.3 and 3.4).
    func isValid(_ signature: [UInt8], for bytes: [UInt8]) -> Bool {
        switch self.material {
        case .p256(let key):
            guard let signature = try? P256.Signing.ECDSASignature(rawRepresentation: signature) else { return false }
            return key.isValidSignature(signature, for: bytes)
        case .rsa(let key):
            let signature = _RSA.Signing.RSASignature(rawRepresentation: signature)
            return key.isValidSignature(signature, for: bytes, padding: .insecurePKCS1v1_5)
        }
    }
}
