// Carillon · RedisConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore

/// How a Redis connection behaves.
package struct RedisConfiguration: Sendable {
    package internal(set) var address: RedisAddress
    /// The name that `CLIENT LIST` shows.
    package var clientName: String
    /// The password of the Sentinels, if the address names some and they ask for one.
    package var sentinelPassword: String?
    /// PEM file of the certificate authorities for a `rediss://` server; nil means the system's.
    package var certificateAuthorityFile: String?
    package var connectTimeout: Duration = .seconds(5)
    /// The time from a call to its reply.
    package var commandTimeout: Duration = .seconds(5)
    /// The limit on commands that wait for a connection or a reply; at it, calls are refused with
    /// `overloaded`.
    ///
    /// One batch may exceed it, however large.
    var maximumWaitingCommands = 65_536
    /// The limit on bytes that wait to be written; more are refused with `overloaded`.
    var maximumWaitingBytes = 64 * 1024 * 1024
    var reconnect = Backoff(base: .milliseconds(50), limit: .seconds(2))
    /// How often a connected client asks for a cluster's map; servers also redirect commands for
    /// other servers.
    var clusterRefresh: Duration = .seconds(15)
    /// Whether calls wait for a server that cannot be reached; if not, the first failure to connect
    /// fails them.
    package var waitsForServer = true
    /// The last answer of the Sentinels; copies share it.
    let sentinels = RedisSentinels()
    /// The masters of a cluster; copies share them.
    let topology = RedisTopology()
    /// The TLS contexts; copies share them.
    let trust = RedisTrust()
    /// Looks host names up; copies share it.
    ///
    /// Caches answers only briefly, because a failover may change them.
    var names = NameResolver(freshness: .seconds(1), failurePause: .seconds(1), lookUp: { NameResolver.lookUp($0) })

    package init(address: RedisAddress, clientName: String) {
        self.address = address
        self.clientName = clientName
    }

    /// Returns the configuration of one server of a cluster.
    func of(_ server: RedisAddress.Server) -> RedisConfiguration {
        var configuration = self
        configuration.address = self.address.server(server)
        return configuration
    }

    /// Returns the moment by which a command that starts now must be answered.
    ///
    /// - Parameter timeout: the time limit; nil means ``commandTimeout``.
    func deadline(_ timeout: Duration? = nil) -> NIODeadline { .now() + TimeAmount(timeout ?? self.commandTimeout) }
}
