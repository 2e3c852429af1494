// Carillon · GatewayIdentity.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import FoundationEssentials
import HTTP
import Logging
import Operations

/// The configuration of identity, checked, and the parts that are made of it.
struct GatewayIdentity {
    private let settings: AuthenticationSettings
    private let allowedOrigins: [String]
    /// What the file of a key set held at start.
    private let initialKeys: KeySet?

    /// Reads a key set's file; one that is a URL is read later, as it may be out of reach now.
    ///
    /// Faults stay with the reader.
    init(_ settings: GatewaySettings, reader: SettingsReader) async {
        // A cookie goes along from pages that are named; that all may call is no word on whom to trust with it.
        self.allowedOrigins = settings.protection.allowedOrigins ?? []
        let settings = settings.authentication
        self.settings = settings
        if case .file(let path) = settings.keySet {
            self.initialKeys = await reader.load("AUTH_JWKS", isSet: true) {
                try KeySet(try KeySetReader.file(path))
            }
        } else {
            self.initialKeys = nil
        }
        if let path = settings.keySetCertificateAuthority, !FileManager.default.isReadableFile(atPath: path) {
            reader.fault("AUTH_JWKS_CA", "cannot be read")
        }
    }

    /// The key set, if one is configured.
    func keySet(logger: Logger) throws -> KeySetCache? {
        if self.settings.acceptsAnyAudience {
            logger.warning("AUTH_JWKS without AUTH_AUDIENCE: tokens that the issuer made for other apps are accepted")
        }
        for reason in self.initialKeys?.passedOver ?? [] {
            logger.notice("key passed over", metadata: ["reason": "\(reason)"])
        }
        switch self.settings.keySet {
        case nil: return nil
        case .file(let path):
            return KeySetCache(initial: self.initialKeys, logger: logger) { () async throws(KeySetFault) in
                try KeySetReader.file(path)
            }
        case .url(let url):
            var configuration = TransferConfiguration()
            configuration.caFile = self.settings.keySetCertificateAuthority
            configuration.maximumInFlight = 2
            configuration.maximumWaiting = 2
            // The settings let no other than this machine through.
            configuration.allowPlainHTTP = url.lowercased().hasPrefix("http://")
            let client = try TransferClient(configuration: configuration, logger: logger)
            return KeySetCache(initial: nil, logger: logger) { () async throws(KeySetFault) in
                try await KeySetReader.url(url, client: client)
            }
        }
    }

    func verifier(
        keySet: KeySetCache?,
        revocations: RevocationRegister,
        now: @escaping @Sendable () -> Timestamp
    ) -> TokenVerifier {
        var rules = TokenRules()
        rules.issuer = self.settings.issuer
        rules.audience = self.settings.audience
        rules.userClaim = self.settings.userClaim
        rules.skew = self.settings.skew
        return TokenVerifier(
            secrets: self.settings.secrets,
            keySet: keySet,
            rules: rules,
            revocations: revocations,
            now: now
        )
    }

    /// The rules of the cookie, if one is configured.
    var cookie: CookieRules? {
        self.settings.cookie.map { CookieRules(name: $0, allowedOrigins: self.allowedOrigins) }
    }
}
