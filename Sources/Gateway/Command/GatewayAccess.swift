// Carillon · GatewayAccess.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import FoundationEssentials
import HTTP
import Logging
import Operations
import Sockets
import Storage

/// The checked identity settings, and the values made from them.
struct GatewayIdentity {
    private let settings: AuthenticationSettings
    private let allowedOrigins: [String]
    /// The keys of the key set's file at start.
    private let initialKeys: KeySet?

    /// Reads a key set's file; one at a URL is read later, because it may be unreachable now.
    ///
    /// The reader collects the faults.
    init(_ settings: GatewaySettings, reader: SettingsReader) async {
        // Cookies are accepted from named pages only; `*` does not make a page trusted.
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
            logger.warning("AUTH_JWKS without AUTH_AUDIENCE: tokens issued for other apps are accepted")
        }
        for reason in self.initialKeys?.skipped ?? [] {
            logger.notice("skipped a key of the key set", metadata: ["reason": "\(reason)"])
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
            // The settings allow plain HTTP to this machine only.
            configuration.allowPlainHTTP = url.lowercased().hasPrefix("http://")
            let client = try TransferClient(configuration: configuration, logger: logger)
            return KeySetCache(initial: nil, logger: logger) { () async throws(KeySetFault) in
                try await KeySetReader.url(url, client: client)
            }
        }
    }

    /// Creates the services that identify callers.
    func services(_ base: GatewayBase, keySet: KeySetCache?, callRate: UserRate?) -> IdentityServices {
        let revocations = RevocationRegister(
            store: base.database.revocations, live: base.live, logger: base.logger)
        let tickets = SocketTickets(base.live, revocations: revocations, now: base.now)
        let verifier = self.verifier(keySet: keySet, revocations: revocations, now: base.now)
        return IdentityServices(
            credentials: CredentialResolver(verifier: verifier, tickets: tickets, cookie: self.cookie),
            tickets: tickets, revocations: revocations, callRate: callRate)
    }

    private func verifier(
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
    private var cookie: CookieRules? {
        self.settings.cookie.map { CookieRules(name: $0, allowedOrigins: self.allowedOrigins) }
    }
}

/// The checked protection settings, and the values made from them.
struct GatewayProtection {
    /// The burst that a user may use at once, in seconds of its rate.
    private static let burst = 6

    let policy: ConnectionPolicy
    private let settings: ProtectionSettings

    /// The reader collects the faults.
    init(_ settings: GatewaySettings, reader: SettingsReader) {
        self.settings = settings.protection
        var policy = ConnectionPolicy()
        if let origins = settings.protection.allowedOrigins {
            policy.origins = .listed(Set(origins + [settings.publicOrigin].compactMap(\.self)))
        } else {
            policy.origins = .any
        }
        policy.isSecure = settings.tlsCertificate != nil
        do throws(AddressFault) {
            policy.trustedProxies = try AddressList(settings.protection.trustedProxies)
        } catch {
            reader.fault("TRUSTED_PROXIES", "cannot be used: \(error)")
        }
        policy.addresses = settings.protection.addressConnections.map { AddressLimiter(limit: $0) }
        self.policy = policy
    }

    var sockets: SocketConfiguration {
        var configuration = SocketConfiguration()
        configuration.connectionsPerUser = self.settings.userConnections
        return configuration
    }

    /// The rate limit of calls; nil if there is none.
    func calls(_ buckets: TokenBuckets) -> UserRate? {
        self.settings.userCalls.map {
            UserRate(kind: .calls, perSecond: $0, burst: $0 * Self.burst, buckets: buckets)
        }
    }

    /// The rate limit of messages over sockets, or of new sockets; nil if there is none.
    ///
    /// Each kind has its own bucket, so that failed openings take nothing from open sockets.
    func sockets(_ kind: TokenBuckets.Kind, _ buckets: TokenBuckets) -> UserRate? {
        self.settings.userMessages.map {
            UserRate(kind: kind, perSecond: $0, burst: $0 * Self.burst, buckets: buckets)
        }
    }
}

extension OpenFiles {
    /// The number of files under a limit that are kept free for stores, keys, certificates, logs
    /// and the connections of probes.
    private static func reserve(under limit: Int) -> Int { min(256, limit / 4) }

    /// The number of client connections under a limit that leaves files for the rest of the
    /// gateway.
    static func connections(under limit: Int) -> Int {
        max(1, limit - self.reserve(under: limit))
    }

    /// The number of connections beyond these that may probe.
    static func spare(under limit: Int) -> Int { self.reserve(under: limit) / 2 }
}
