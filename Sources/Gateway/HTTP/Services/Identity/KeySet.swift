// Carillon · KeySet.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import FoundationEssentials
import _CryptoExtras

/// The keys of a JWKS document (RFC 7517 section 5) that can verify tokens.
package struct KeySet: Sendable {
    /// The most keys of a set: a token without `kid` is tried with all keys of its algorithm.
    private static let most = 64

    private let keys: [VerificationKey]
    /// The reasons why other keys of the document are not used, with their index; at most 64.
    package let skipped: [String]

    /// Parses a document; uses the first 64 keys that are strong enough and for RS256 or ES256.
    ///
    /// - Throws: ``KeySetFault`` if the document is not a JWKS or has no usable key.
    package init(_ document: [UInt8]) throws(KeySetFault) {
        let value: JSONValue
        do throws(JSONFault) {
            value = try JSONParser.parse(document)
        } catch {
            throw KeySetFault("the document is \(error)")
        }
        guard let members = value["keys"]?.array else { throw KeySetFault("the document has no array `keys`") }
        var keys: [VerificationKey] = []
        var skipped: [String] = []
        // Keys of different types may share a kid (RFC 7517 section 4.5).
        var names: [VerificationKey.Algorithm: Set<ExactText>] = [:]
        for (index, member) in members.enumerated() {
            do throws(VerificationKey.Unfit) {
                let key = try VerificationKey(member)
                guard keys.count < Self.most else {
                    throw VerificationKey.Unfit("comes after \(Self.most) usable keys")
                }
                if let kid = key.kid, !names[key.algorithm, default: []].insert(ExactText(kid)).inserted {
                    throw VerificationKey.Unfit("has the kid of another key")
                }
                keys.append(key)
            } catch {
                // Each reason is logged, so bound their number.
                if skipped.count < Self.most { skipped.append("key \(index) \(error.reason)") }
            }
        }
        guard !keys.isEmpty else {
            throw KeySetFault((["the document has no usable key"] + skipped.prefix(4)).joined(separator: "; "))
        }
        self.keys = keys
        self.skipped = skipped
    }

    /// Returns the keys for an algorithm, and only the one named `kid` if given.
    func candidates(_ algorithm: VerificationKey.Algorithm, kid: String?) -> [VerificationKey] {
        self.keys.filter { key in
            key.algorithm == algorithm && (kid == nil || key.kid.map { ExactText($0) } == kid.map { ExactText($0) })
        }
    }

    package var count: Int { self.keys.count }
}

/// A reason why a key set cannot be read or used.
package struct KeySetFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}

/// A public key of a set, for one algorithm.
struct VerificationKey: Sendable {
    enum Algorithm: String, Sendable {
        case rs256 = "RS256"
        case es256 = "ES256"
    }

    /// A reason why a key is skipped; it contains no part of the key.
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

    /// Key sizes in bits: shorter keys are weak, longer ones make verification slow.
    private static let sizes = 2_048...8_192

    let algorithm: Algorithm
    let kid: String?
    private let material: Material

    /// Parses a JSON Web Key (RFC 7517 section 4, RFC 7518 section 6).
    init(_ key: JSONValue) throws(Unfit) {
        guard key.object != nil else { throw Unfit("is not an object") }
        switch key["kid"] {
        case nil: self.kid = nil
        case .string(let text) where (1...256).contains(text.utf8.count): self.kid = text
        default: throw Unfit("has a kid that is not a string of 1 to 256 bytes")
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
        guard let modulus = key["n"]?.string.flatMap({ Base64.url.decode($0.utf8) }),
            let exponent = key["e"]?.string.flatMap({ Base64.url.decode($0.utf8) }),
            modulus.count * 8 <= Self.sizes.upperBound + 8
        else { throw Unfit("has no usable modulus and exponent") }
        let made = try? _RSA.Signing.PublicKey(n: modulus, e: exponent)
        guard let made, Self.sizes.contains(made.keySizeInBits) else {
            throw Unfit("is not an RSA key of \(Self.sizes.lowerBound) to \(Self.sizes.upperBound) bits")
        }
        return made
    }

    private static func p256(_ key: JSONValue) throws(Unfit) -> P256.Signing.PublicKey {
        guard key["crv"]?.string == "P-256" else { throw Unfit("is not on the curve P-256") }
        guard let x = key["x"]?.string.flatMap({ Base64.url.decode($0.utf8) }), x.count == 32,
            let y = key["y"]?.string.flatMap({ Base64.url.decode($0.utf8) }), y.count == 32,
            let made = try? P256.Signing.PublicKey(rawRepresentation: x + y)
        else { throw Unfit("is not a point on the curve P-256") }
        return made
    }

    /// Whether the signature is valid for `bytes` (RFC 7518 sections 3.3 and 3.4).
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

/// Reads a JWKS document with limits on size and time.
package enum KeySetReader {
    private static let longest = 256 * 1024
    private static let deadline: Duration = .seconds(10)

    /// Reads a file.
    package static func file(_ path: String) throws(KeySetFault) -> [UInt8] {
        guard let bytes = FileManager.default.contents(atPath: path) else { throw KeySetFault("cannot be read") }
        guard bytes.count <= Self.longest else { throw KeySetFault("exceeds \(Self.longest) bytes") }
        return Array(bytes)
    }

    /// Fetches a URL; requires a complete 200 response of at most 256 KB within 10 s, without
    /// redirects.
    package static func url(_ url: String, client: TransferClient) async throws(KeySetFault) -> [UInt8] {
        let request = TransferRequest(
            .get,
            url: url,
            headers: [("accept", "application/json")],
            timeout: Self.deadline,
            maximumResponseBytes: Self.longest
        )
        switch await client.perform(request) {
        case .unanswered(let failure): throw KeySetFault("\(failure)")
        case .answered(let response):
            guard response.status == 200 else { throw KeySetFault("the server answered \(response.status)") }
            guard response.isComplete else { throw KeySetFault("the response was truncated") }
            return response.body
        }
    }
}
