// Carillon · TokenSource.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The user's token, for all calls and sockets of a gateway.
///
/// Callers that need a fresh token at the same time share one call of the provider, because many
/// logins accept a refresh token only once.
actor TokenSource {
    private let provider: TokenProvider
    /// The last token that this source returned.
    private(set) var newest: String?
    private var refresh: Task<Result<String, GatewayError>, Never>?

    init(_ provider: @escaping TokenProvider) {
        self.provider = provider
    }

    /// Returns a token; if `refused` is given, one that replaces it.
    func token(replacing refused: String? = nil) async throws(GatewayError) -> String {
        if let refresh { return try await refresh.value.get() }
        guard let refused else {
            let token = try await Self.fetch(self.provider, isRefused: false).get()
            self.newest = token
            return token
        }
        if let newest, newest != refused { return newest }
        let refresh = Task { [provider] in await Self.fetch(provider, isRefused: true) }
        self.refresh = refresh
        let result = await refresh.value
        self.refresh = nil
        let token = try result.get()
        self.newest = token
        return token
    }

    private static func fetch(_ provider: TokenProvider, isRefused: Bool) async -> Result<String, GatewayError> {
        do {
            guard let token = try await provider(isRefused) else { return .failure(.signedOut) }
            let trimmed = token.trimmingCharacters(in: .whitespacesAndNewlines)
            // A header holds no other characters, and an HTTP library's error would show the token.
            guard !trimmed.isEmpty, trimmed.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
                return .failure(.noToken("a token must be printable ASCII without spaces"))
            }
            return .success(trimmed)
        } catch {
            return .failure(Task.isCancelled ? .cancelled : .noToken("\(error)"))
        }
    }

    /// The time until which a token is valid, and its length.
    struct Lifetime {
        let end: Date
        /// The seconds from `iat` to `exp`; infinite without an `iat`.
        let length: TimeInterval
    }

    /// Returns the lifetime of a JWT without verifying it; nil if it has no `exp`.
    static func lifetime(of token: String) -> Lifetime? {
        struct Claims: Decodable {
            let iat: Double?
            let exp: Double?
        }
        let parts = token.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3 else { return nil }
        var text = parts[1].replacingOccurrences(of: "-", with: "+").replacingOccurrences(of: "_", with: "/")
        while text.utf8.count % 4 != 0 { text.append("=") }
        guard let data = Data(base64Encoded: text), let claims = try? JSON.decode(Claims.self, from: data),
            let end = claims.exp
        else { return nil }
        return Lifetime(end: Date(timeIntervalSince1970: end), length: claims.iat.map { end - $0 } ?? .infinity)
    }
}
