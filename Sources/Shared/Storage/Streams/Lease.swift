// Carillon · Lease.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization

/// A lease that shows that a process is alive.
package final class Lease: Sendable {
    package static let usualLifetime: Duration = .seconds(15)

    /// How long a register keeps a holder whose lease has ended.
    ///
    /// Longer than clocks may differ, because each holder removes expired ones by its own clock.
    private static let memory: Duration = .seconds(24 * 3_600)

    /// A sorted set of holders by the end of their lease.
    package struct Register: Sendable {
        let key: String
        /// The holder's name.
        let name: String
        let now: @Sendable () -> Timestamp

        package init(key: String, name: String, now: @escaping @Sendable () -> Timestamp) {
            self.key = key
            self.name = name
            self.now = now
        }
    }

    private let key: String
    private let value: String
    private let register: Register?
    package let lifetime: Duration
    private let connection: RedisClient
    private let now: @Sendable () -> ContinuousClock.Instant
    // When the last answered renewal began.
    private let renewedAt = Mutex<ContinuousClock.Instant?>(nil)

    /// - Parameters:
    ///   - key: a key of ``Keyspace``.
    ///   - value: text about the holder for operators.
    ///   - register: the register that lists the holder; nil for none.
    ///   - lifetime: the time from a renewal until the lease expires.
    ///   - now: a monotonic clock.
    package init(
        key: String,
        value: String,
        register: Register? = nil,
        lifetime: Duration = Lease.usualLifetime,
        connection: RedisClient,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.key = key
        self.value = value
        self.register = register
        self.lifetime = lifetime
        self.connection = connection
        self.now = now
    }

    /// The interval between renewals.
    package var renewal: Duration { self.lifetime / 3 }

    /// The time limit of a renewal, so that at least two may fail before the lease expires.
    package var patience: Duration { self.lifetime / 6 }

    /// The pause after a failed renewal.
    package static let retry: Duration = .milliseconds(250)

    /// Acquires or renews the lease.
    ///
    /// - Parameters:
    ///   - value: the new text about the holder; nil for the initial one.
    ///   - isListed: whether to list the holder in the register, if there is one.
    ///   - timeout: the time limit; nil means the connection's.
    /// - Returns: whether the lease was held without a gap since the last renewal.
    package func renew(
        showing value: String? = nil,
        isListed: Bool = true,
        timeout: Duration? = nil
    ) async throws(RedisError) -> Bool {
        let start = self.now()
        var listing = RedisBatch()
        if let register, isListed {
            let moment = register.now()
            let end = moment + self.lifetime
            let oldest = (moment - Self.memory).milliseconds
            listing.append("ZADD", .text(register.key), .integer(end.milliseconds), .text(register.name))
            listing.append("ZREMRANGEBYSCORE", .text(register.key), "-inf", .integer(oldest))
        }
        let wasThere =
            try await self.connection.send(
                "SET", .text(self.key), .text(value ?? self.value), "PX", .integer(self.lifetime.inMilliseconds), "GET",
                timeout: timeout
            ).string() != nil
        // An earlier renewal may have found the lease expired and lost its reply.
        let isWithoutGap = self.renewedAt.withLock { renewedAt in
            defer { renewedAt = start }
            guard wasThere, let renewedAt else { return wasThere }
            return self.now() - renewedAt < self.lifetime
        }
        // After the lease, because the register may be on another master of a cluster: a holder
        // that is listed without a lease would keep its work from the others.
        _ = try? await self.connection.send(listing, timeout: timeout, isPatient: false)
        return isWithoutGap
    }

    /// Returns the names of all holders in a register.
    ///
    /// Leaves out a lease that ends later than a renewal could set: it was renewed before a wrong
    /// clock was set back. A living holder renews it within seconds.
    ///
    /// - Parameters:
    ///   - lifetime: the lifetime of the leases.
    ///   - timeout: the time limit; nil means the connection's.
    package static func holders(
        in register: String,
        at now: Timestamp,
        lifetime: Duration,
        connection: RedisClient,
        timeout: Duration? = nil
    ) async throws(RedisError) -> [String] {
        // Twice the lifetime, because clocks differ by seconds and holders may have other
        // lifetimes.
        let latest = now + lifetime * 2
        return try await connection.send(
            "ZRANGEBYSCORE", .text(register), .integer(now.milliseconds), .integer(latest.milliseconds),
            timeout: timeout
        ).strings()
    }

    /// Releases the lease.
    package func release() async throws(RedisError) {
        var batch = RedisBatch()
        batch.append("DEL", .text(self.key))
        if let register { batch.append("ZREM", .text(register.key), .text(register.name)) }
        try await self.connection.run(batch)
    }

    /// Whether a process holds the lease under each of `keys`, in one round trip.
    ///
    /// A lease counts as held while its master in a cluster is away.
    package static func areHeld(_ keys: [String], connection: RedisClient) async throws(RedisError) -> [Bool] {
        var batch = RedisBatch()
        for key in keys { batch.append("EXISTS", .text(key)) }
        let replies: [RedisReply]
        do throws(RedisError) {
            replies = try await connection.send(batch, isPatient: false)
        } catch  where error.isOfAbsentServer && connection.isCluster {
            return keys.map { _ in true }
        }
        var held: [Bool] = []
        for reply in replies {
            if case .error(let error) = reply, error.isOfAbsentServer, connection.isCluster {
                held.append(true)
            } else {
                held.append(try reply.integer() == 1)
            }
        }
        return held
    }
}

/// The version of a process and when it started, which its lease shows to operators.
package struct ProcessNote: Sendable, Equatable {
    package let version: String
    package let startedAt: Timestamp

    package init(version: String, startedAt: Timestamp) {
        self.version = version
        self.startedAt = startedAt
    }

    /// Reads the value of a lease; nil if it has no note.
    init?(leaseValue: String) {
        let parts = leaseValue.split(separator: " ")
        guard parts.count == 4, let milliseconds = Int64(parts[3]),
            Timestamp.writableMilliseconds.contains(milliseconds)
        else { return nil }
        self.init(version: String(parts[2]), startedAt: Timestamp(milliseconds: milliseconds))
    }

    /// Returns the value of a lease: the kind of the process, its load, and this note.
    package func leaseValue(_ kind: String, load: Int = 0) -> String {
        "\(kind) \(load) \(self.version) \(self.startedAt.milliseconds)"
    }
}
