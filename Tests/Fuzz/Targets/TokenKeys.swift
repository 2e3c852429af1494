// Carillon · TokenKeys.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation
import HTTP
import Logging
import _CryptoExtras

/// The keys of an issuer that signs whatever it is given; they open nothing anywhere.
struct TokenKeys {
    static let secret = "a-secret-of-more-than-thirty-two-bytes"

    private let elliptic: P256.Signing.PrivateKey
    private let rsa: _RSA.Signing.PrivateKey

    init() {
        self.elliptic = P256.Signing.PrivateKey()
        do {
            self.rsa = try _RSA.Signing.PrivateKey(keySize: .bits2048)
        } catch {
            fatalError("no RSA key can be made: \(error)")
        }
    }

    /// Their set, which is never read again.
    func cache() -> KeySetCache {
        var timing = KeySetCache.Timing()
        timing.interval = .seconds(1_000_000)
        timing.gap = .seconds(1_000_000)
        let keys = try? KeySet(Array(self.document.utf8))
        return KeySetCache(initial: keys, timing: timing, logger: Logger(label: "fuzz")) {
            () async throws(KeySetFault) in throw KeySetFault("is not read here")
        }
    }

    /// As a JWKS document.
    private var document: String {
        let point = self.elliptic.publicKey.rawRepresentation
        let numbers = try? self.rsa.publicKey.getKeyPrimitives()
        let modulus = Self.encode(numbers?.modulus ?? Data()), exponent = Self.encode(numbers?.publicExponent ?? Data())
        return #"{"keys":[{"kty":"EC","crv":"P-256","kid":"e","x":"\#(Self.encode(point.prefix(32)))","#
            + #""y":"\#(Self.encode(point.suffix(32)))"},{"kty":"RSA","kid":"r","n":"\#(modulus)","e":"\#(exponent)"}]}"#
    }

    /// A token of these bytes, signed as its header asks for; by the secret where it asks for nothing known.
    func sign(_ header: ArraySlice<UInt8>, _ claims: ArraySlice<UInt8>) -> String {
        let signed = Self.encode(header) + "." + Self.encode(claims)
        let bytes = Data(signed.utf8)
        let name = String(decoding: header, as: UTF8.self)
        var signature = Data(
            HMAC<SHA256>.authenticationCode(for: bytes, using: SymmetricKey(data: Data(Self.secret.utf8))))
        if name.contains("ES256"), let made = try? self.elliptic.signature(for: bytes) {
            signature = made.rawRepresentation
        } else if name.contains("RS256"), let made = try? self.rsa.signature(for: bytes, padding: .insecurePKCS1v1_5) {
            signature = made.rawRepresentation
        }
        return signed + "." + Self.encode(signature)
    }

    private static func encode(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }
}
