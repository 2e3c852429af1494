// Carillon · UserRate.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Metrics
import ServiceLifecycle
import Storage
import Synchronization

/// Limits the rate of each user over all nodes without waiting.
///
/// The node counts actions locally and takes them in lots from the user's bucket in Redis. A reply
/// limits only later actions, so most calls need no round trip, and users get slightly more than
/// their rate. While a user's Redis server is unavailable, the user is not limited, which is
/// counted.
package final class UserRate: Service {
    /// Actions since the last lot, and the time until which the user is blocked.
    private struct Account {
        var count = 0
        var blockedUntil: ContinuousClock.Instant?
    }

    private struct Report: Sendable {
        let user: String
        let count: Int
        let at: ContinuousClock.Instant
    }

    /// The most lots that wait for Redis; further ones are dropped.
    private static let mostReports = 10_000
    private static let largestLot = 16
    /// The most lots in flight, so that one slow server does not hold up the lots of the others.
    private static let inFlight = 64
    /// The longest wait of a lot for Redis; older ones are dropped, because they are out of date.
    private static let longestWait = Duration.seconds(5)

    private let kind: TokenBuckets.Kind
    private let perSecond: Int
    private let burst: Int
    private let lot: Int
    private let mostUsers: Int
    private let buckets: TokenBuckets
    private let accounts = Mutex<[ExactText: Account]>([:])
    private let reports: AsyncStream<Report>
    private let reporter: AsyncStream<Report>.Continuation
    private let refused: Counter
    private let unchecked: Counter

    /// - Parameters:
    ///   - perSecond: the long-term rate of a user.
    ///   - burst: the largest burst of a user.
    ///   - mostUsers: the most users held here. At the limit, users who are not blocked are
    ///     dropped; if all are blocked, new users are not limited, which is counted.
    package init(
        kind: TokenBuckets.Kind,
        perSecond: Int,
        burst: Int,
        mostUsers: Int = 50_000,
        buckets: TokenBuckets,
        metrics: any MetricsFactory = MetricsSystem.factory
    ) {
        self.kind = kind
        self.perSecond = perSecond
        self.burst = burst
        self.mostUsers = mostUsers
        self.lot = max(1, min(Self.largestLot, burst / 4))
        self.buckets = buckets
        (self.reports, self.reporter) = AsyncStream.makeStream(
            bufferingPolicy: .bufferingOldest(Self.mostReports)
        )
        let dimensions = [("kind", kind.rawValue)]
        self.refused = Counter(label: "carillon.rate.refused", dimensions: dimensions, factory: metrics)
        self.unchecked = Counter(label: "carillon.rate.unchecked", dimensions: dimensions, factory: metrics)
    }

    /// Counts actions and returns how long the user must wait first; nil if not at all.
    func delay(_ user: String, count: Int = 1) -> Duration? {
        let key = ExactText(user)
        let now = ContinuousClock.now
        let (delay, due) = self.accounts.withLock { accounts -> (Duration?, Int) in
            if accounts.count >= self.mostUsers, accounts[key] == nil {
                accounts = accounts.filter { ($0.value.blockedUntil ?? now) > now }
                guard accounts.count < self.mostUsers else {
                    self.unchecked.increment()
                    return (nil, 0)
                }
            }
            var account = accounts[key] ?? Account()
            if let until = account.blockedUntil, until > now { return (until - now, 0) }
            account.blockedUntil = nil
            account.count += count
            let due = account.count >= self.lot ? account.count : 0
            account.count -= due
            accounts[key] = account
            return (nil, due)
        }
        if delay != nil { self.refused.increment() }
        if due > 0, case .dropped = self.reporter.yield(Report(user: user, count: due, at: now)) {
            self.unchecked.increment()
        }
        return delay
    }

    /// Takes the lots from the buckets until the process ends.
    package func run() async {
        let permits = Permits(Self.inFlight)
        await withGracefulShutdownHandler {
            await withDiscardingTaskGroup { group in
                for await report in self.reports {
                    if Task.isShuttingDownGracefully || Task.isCancelled { break }
                    await permits.acquire()
                    group.addTask {
                        defer { permits.release() }
                        await self.take(report)
                    }
                }
            }
        } onGracefulShutdown: {
            self.reporter.finish()
        }
    }

    private func take(_ report: Report) async {
        guard ContinuousClock.now - report.at < Self.longestWait else { return self.unchecked.increment() }
        do {
            let delay = try await self.buckets.take(
                report.count,
                kind: self.kind,
                user: report.user,
                perSecond: self.perSecond,
                burst: self.burst
            )
            guard delay > 0 else { return }
            let until = ContinuousClock.now + .milliseconds(delay)
            let key = ExactText(report.user)
            self.accounts.withLock { accounts in
                // Replies to lots of one user come in any order.
                let known = accounts[key]?.blockedUntil ?? until
                accounts[key, default: Account()].blockedUntil = max(known, until)
            }
        } catch {
            self.unchecked.increment()
        }
    }
}
