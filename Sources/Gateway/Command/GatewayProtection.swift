// Carillon · GatewayProtection.swift
// SPDX-License-Identifier: Apache-2.0

import HTTP
import Operations
import Sockets
import Storage

/// The configuration of protection, checked, and the parts that are made of it.
struct GatewayProtection {
    /// What a user may do at once, in seconds of its rate.
    private static let burst = 6

    let policy: DoorPolicy
    private let settings: ProtectionSettings

    /// Faults stay with the reader.
    init(_ settings: GatewaySettings, reader: SettingsReader) {
        self.settings = settings.protection
        var policy = DoorPolicy()
        if let origins = settings.protection.allowedOrigins {
            policy.origins = .listed(Set(origins + [settings.publicURL.flatMap(Self.origin)].compactMap(\.self)))
        } else {
            policy.origins = .any
        }
        policy.isSecure = settings.tlsCertificate != nil
        do throws(AddressFault) {
            policy.trustedProxies = try AddressList(settings.protection.trustedProxies)
        } catch {
            reader.fault("TRUSTED_PROXIES", "cannot be used: \(error)")
        }
        policy.addresses = settings.protection.addressConnections.map { AddressTally(limit: $0) }
        self.policy = policy
    }

    /// The origin of the pages of a URL.
    private static func origin(_ url: String) -> String? {
        guard let scheme = url.firstRange(of: "://") else { return nil }
        return url[..<scheme.upperBound].lowercased()
            + url[scheme.upperBound...].prefix { $0 != "/" && $0 != "?" && $0 != "#" }.lowercased()
    }

    var sockets: SocketConfiguration {
        var configuration = SocketConfiguration()
        configuration.connectionsPerUser = self.settings.userConnections
        return configuration
    }

    /// Bounds calls; nil where they are not to be bounded.
    func calls(_ buckets: TokenBuckets) -> UserRate? {
        self.settings.userCalls.map {
            UserRate(kind: .calls, perSecond: $0, burst: $0 * Self.burst, buckets: buckets)
        }
    }

    /// Bounds messages over sockets; nil where they are not to be bounded.
    func messages(_ buckets: TokenBuckets) -> UserRate? {
        self.settings.userMessages.map {
            UserRate(kind: .messages, perSecond: $0, burst: $0 * Self.burst, buckets: buckets)
        }
    }
}
