// Carillon · SoakRedis.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support

/// Redis servers whose master is killed during a soak.
enum SoakRedis {
    /// A master, two replicas and three Sentinels.
    case sentinel(SentinelGroup)
    /// Three masters, each with a replica.
    case cluster(TestCluster)

    private static let parts = 16
    /// How long replicas stand still before the master dies.
    private static let stall: Duration = .milliseconds(1_500)

    var url: String {
        switch self {
        case .sentinel(let group): group.url
        case .cluster(let cluster): cluster.url
        }
    }

    /// The settings of the services.
    var settings: [String: String] { ["REDIS_URL": self.url, "JOB_REPLICAS": "1"] }

    /// The stream for a user's jobs.
    func stream(of user: String) -> String {
        switch self {
        case .sentinel: Keyspace().jobs(.critical)
        case .cluster: Keyspace(parts: Self.parts).part(of: user).jobs(.critical)
        }
    }

    /// Kills the master that has a user's jobs, and waits until a replica has taken over.
    func failOver(of user: String) async throws {
        switch self {
        case .sentinel(let group): try await group.failOver(after: Self.stall)
        case .cluster(let cluster):
            let stream = self.stream(of: user)
            // In the same slot, because the tag is.
            let filler = stream.prefix { $0 != "}" } + "}filler"
            try await cluster.failOver(
                slot: RedisSlot.of(Array(stream.utf8)), after: Self.stall, filler: String(filler))
        }
    }
}
