// Carillon · TokenVerifier.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Synchronization

/// Verifies JSON Web Tokens (RFC 7519): HS256 with secrets, RS256 and ES256 with a key set (RFC
/// 7517).
///
/// The algorithm selects the keys, so a public key is never used as a secret. With a known key and
/// the revocations in memory, it never waits.
package struct TokenVerifier: Sendable {
    /// A keyed HMAC for each secret, copied to check a token.
    private let secrets: [HMAC<SHA256>]
    private let keySet: KeySetCache?
    private let rules: TokenRules
    private let revocations: RevocationRegister?
    private let verified = VerifiedTokens()
    private let now: @Sendable () -> Timestamp

    /// - Parameters:
    ///   - secrets: the secrets for HS256; several during a rotation.
    ///   - keySet: the keys for RS256 and ES256.
    ///   - revocations: nil to skip the check for revocation.
    package init(
        secrets: [String],
        keySet: KeySetCache?,
        rules: TokenRules,
        revocations: RevocationRegister? = nil,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.secrets = secrets.map { HMAC<SHA256>(key: SymmetricKey(data: Array($0.utf8))) }
        self.keySet = keySet
        self.rules = rules
        self.revocations = revocations
        self.now = now
    }

    /// Whether there is a key to verify tokens with; from then on it stays true.
    var hasKeys: Bool { !self.secrets.isEmpty || self.keySet?.hasKeys == true }

    /// Verifies a token and returns its caller.
    ///
    /// - Parameter remembers: whether to cache the result, because the token probably returns soon.
    /// - Throws: ``TokenFault`` with the reason.
    package func verify(_ token: String, remembers: Bool = false) async throws(TokenFault) -> Caller {
        do throws(TokenFault) {
            // Read this first: if the set is refreshed during the check, the result is outdated.
            let reading = self.keySet?.reading
            let digest = VerifiedTokens.digest(token)
            let caller: Caller
            if let known = self.verified.caller(digest, reading: reading, now: self.now()) {
                caller = known
            } else {
                let token = try SignedToken(token)
                try await self.checkSignature(token)
                caller = try self.rules.caller(token.claims, now: self.now())
                if remembers {
                    self.verified.keep(caller, digest, reading: token.algorithm == .hs256 ? nil : reading)
                }
            }
            try await self.revocations?.check(caller)
            return caller
        } catch {
            IdentityMetrics.count(error)
            throw error
        }
    }

    /// Checks again that the token of a verified caller was not revoked.
    func recheck(_ caller: Caller) async throws(TokenFault) {
        do throws(TokenFault) {
            try await self.revocations?.check(caller)
        } catch {
            IdentityMetrics.count(error)
            throw error
        }
    }

    private func checkSignature(_ token: SignedToken) async throws(TokenFault) {
        var isValid = false
        switch token.algorithm {
        case .hs256:
            guard !self.secrets.isEmpty else { throw TokenFault("the token's algorithm is not accepted") }
            for var code in self.secrets where !isValid {
                code.update(data: token.signed)
                // Compares in constant time.
                isValid = code.finalize() == token.signature
            }
        case .keySet(let algorithm):
            guard let keySet else { throw TokenFault("the token's algorithm is not accepted") }
            let keys = try await keySet.candidates(algorithm, kid: token.kid)
            isValid = keys.contains { $0.isValid(token.signature, for: token.signed) }
        }
        guard isValid else { throw TokenFault("the token's signature is not valid") }
    }
}

/// A parsed but unverified JSON Web Token in compact form (RFC 7515 section 7.1).
struct SignedToken {
    enum Algorithm: Equatable {
        case hs256
        case keySet(VerificationKey.Algorithm)
    }

    private static let longest = 8_192

    let algorithm: Algorithm
    let kid: String?
    let claims: JSONValue
    /// The signed bytes: header and claims with the dot between them.
    let signed: [UInt8]
    let signature: [UInt8]

    /// Parses a token; refuses lenient JSON, such as repeated names.
    init(_ text: String) throws(TokenFault) {
        guard text.utf8.count <= Self.longest else { throw TokenFault("the token is too long") }
        let bytes = Array(text.utf8)
        let parts = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Self.object(parts[0]), let claims = Self.object(parts[1]),
            let signature = Base64.url.decode(parts[2])
        else { throw TokenFault("the token is not a JSON Web Token") }
        // No extension is supported, and critical ones must be understood (RFC 7515 section
        // 4.1.11).
        guard header["crit"] == nil else { throw TokenFault("the token's critical header is not supported") }
        switch header["alg"]?.string {
        case "HS256": self.algorithm = .hs256
        case "RS256": self.algorithm = .keySet(.rs256)
        case "ES256": self.algorithm = .keySet(.es256)
        default: throw TokenFault("the token's algorithm is not accepted")
        }
        switch header["kid"] {
        case nil: self.kid = nil
        case .string(let text): self.kid = text
        default: throw TokenFault("the token's kid is not a string")
        }
        self.claims = claims
        self.signed = Array(bytes[..<parts[1].endIndex])
        self.signature = signature
    }

    private static func object(_ part: ArraySlice<UInt8>) -> JSONValue? {
        guard let bytes = Base64.url.decode(part), let value = try? JSONParser.parse(bytes), value.object != nil else {
            return nil
        }
        return value
    }
}

/// The required claims of a token (RFC 7519 section 4.1) and their meaning.
package struct TokenRules: Sendable {
    /// The lifetime of a token without `exp`, from its `iat` on.
    private static let longestWithoutEnd: Duration = .seconds(30 * 86_400)

    package var issuer: String?
    package var audience: String?
    package var userClaim = "sub"
    /// The allowed clock skew between issuer and gateway.
    package var skew: Duration = .seconds(30)

    package init() {}

    /// Checks the claims and returns their caller.
    func caller(_ claims: JSONValue, now: Timestamp) throws(TokenFault) -> Caller {
        let expiry = try Self.moment(claims, "exp").map { $0 + self.skew }
        if let expiry, expiry <= now { throw TokenFault("the token has expired") }
        if let start = try Self.moment(claims, "nbf"), start > now + self.skew {
            throw TokenFault("the token is not valid yet")
        }
        let issuedAt = try Self.moment(claims, "iat")
        // A token from the future would survive revocations until then.
        if let issuedAt, issuedAt > now + self.skew { throw TokenFault("the token was issued in the future") }
        if let issuer, !Self.isSame(claims["iss"]?.string, issuer) {
            throw TokenFault("the token's issuer is not accepted")
        }
        if let audience {
            let named = claims["aud"]?.strings ?? claims["aud"]?.string.map { [$0] } ?? []
            guard named.contains(where: { Self.isSame($0, audience) }) else {
                throw TokenFault("the token is for another audience")
            }
        }
        let claim = claims[self.userClaim]
        guard let user = claim?.string ?? claim?.integer.map({ String($0) }), Self.isUser(user) else {
            throw TokenFault("the token's claim \(self.userClaim) is not a user id")
        }
        let words = claims["scope"]?.strings ?? claims["scope"]?.string?.split(separator: " ").map { String($0) } ?? []
        let scopes = Set(words.compactMap { Caller.Scope(rawValue: $0) })
        // Without a scope these claims are ignored, because the issuer may use them for something
        // else.
        let allowance = scopes.isEmpty ? JobAllowance() : try JobAllowance(claims: claims)
        // A token without an end would be valid as long as its key.
        guard let end = expiry ?? issuedAt.map({ $0 + Self.longestWithoutEnd + self.skew }) else {
            throw TokenFault("the token has neither exp nor iat")
        }
        guard end > now else { throw TokenFault("the token has no exp and was issued over 30 days ago") }
        return Caller(user: user, scopes: scopes, issuedAt: issuedAt, expiresAt: end, allowance: allowance)
    }

    /// Compares code points, because `String` treats canonically equivalent texts as equal.
    private static func isSame(_ text: String?, _ other: String) -> Bool {
        text.map { ExactText($0) == ExactText(other) } ?? false
    }

    private static func isUser(_ user: String) -> Bool {
        (1...JobLimits.user).contains(user.unicodeScalars.count) && !user.utf8.contains(0)
    }

    /// Reads a NumericDate, with or without a fraction.
    private static func moment(_ claims: JSONValue, _ name: String) throws(TokenFault) -> Timestamp? {
        guard let claim = claims[name] else { return nil }
        guard case .number(let text) = claim, let value = Double(text), abs(value) < 1e12 else {
            throw TokenFault("the token's claim \(name) is not a time")
        }
        return Timestamp(microseconds: Int64(value * 1_000_000))
    }
}

/// A cache of tokens with a valid signature and claims.
///
/// It stores digests, never tokens. It checks expiry itself; the caller checks revocation.
/// Refreshing the key set invalidates entries that were verified with the old set.
final class VerifiedTokens: Sendable {
    private struct Entry {
        let caller: Caller
        /// The read of the key set that verified the token; nil for a secret.
        let reading: UInt64?
    }

    private struct State {
        var recent: [SHA256.Digest: Entry] = [:]
        var older: [SHA256.Digest: Entry] = [:]
    }

    /// The size of a generation; a full recent generation replaces the older one.
    private let bound: Int
    private let state = Mutex(State())

    init(bound: Int = 16_384) {
        self.bound = bound
    }

    static func digest(_ token: String) -> SHA256.Digest {
        var token = token
        return token.withUTF8 { SHA256.hash(data: UnsafeRawBufferPointer($0)) }
    }

    /// Returns the caller of a token that is cached and still valid.
    ///
    /// - Parameter reading: the current read of the key set.
    func caller(_ digest: SHA256.Digest, reading: UInt64?, now: Timestamp) -> Caller? {
        self.state.withLock { state in
            guard let entry = state.recent[digest] ?? state.older[digest] else { return nil }
            let hasExpired = entry.caller.expiresAt.map { $0 <= now } ?? false
            guard !hasExpired, entry.reading == nil || entry.reading == reading else {
                state.recent[digest] = nil
                state.older[digest] = nil
                return nil
            }
            if state.older.removeValue(forKey: digest) != nil { self.insert(entry, digest, &state) }
            return entry.caller
        }
    }

    /// Caches the caller of a token.
    ///
    /// - Parameter reading: the read of the key set from before the check; nil for a secret.
    func keep(_ caller: Caller, _ digest: SHA256.Digest, reading: UInt64?) {
        self.state.withLock { self.insert(Entry(caller: caller, reading: reading), digest, &$0) }
    }

    private func insert(_ entry: Entry, _ digest: SHA256.Digest, _ state: inout State) {
        if state.recent.count >= self.bound {
            state.older = state.recent
            state.recent = [:]
        }
        state.recent[digest] = entry
    }
}

/// Issues tokens with the configured secret, for operators and tests.
package enum TokenIssuer {
    /// Returns a signed HS256 token.
    ///
    /// - Parameters:
    ///   - userClaim: the claim that holds the user, as in ``TokenRules``.
    ///   - types: the types of jobs that it may send; nil for all.
    ///   - audiences: the audiences that it may send jobs to; nil for all.
    package static func issue(
        user: String,
        userClaim: String = "sub",
        scope: Caller.Scope?,
        lifetime: Duration,
        secret: String,
        issuer: String?,
        audience: String?,
        types: [String]? = nil,
        audiences: [JobAllowance.Audience]? = nil,
        now: Timestamp
    ) -> String {
        var claims = JSONWriter()
        claims.beginObject()
        claims.key(escaping: userClaim)
        claims.string(user)
        let words: [(StaticString, String?)] = [("scope", scope?.rawValue), ("iss", issuer), ("aud", audience)]
        for case (let name, .some(let text)) in words {
            claims.key(name)
            claims.string(text)
        }
        let lists: [(StaticString, [String]?)] = [("types", types), ("audiences", audiences?.map(\.rawValue))]
        for case (let name, .some(let texts)) in lists {
            claims.key(name)
            claims.beginArray()
            for text in texts { claims.string(text) }
            claims.endArray()
        }
        claims.member("iat", now.seconds)
        claims.member("exp", (now + lifetime).seconds)
        claims.endObject()
        let key = SymmetricKey(data: Array(secret.utf8))
        return JSONWebToken.signed(.hs256, claims: claims.bytes) { bytes in
            HMAC<SHA256>.authenticationCode(for: bytes, using: key)
        }
    }
}
