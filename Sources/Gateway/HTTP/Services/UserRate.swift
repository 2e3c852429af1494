// Carillon · UserRate.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Metrics
import ServiceLifecycle
import Storage
import Synchronization

/// Bounds what each user does, over all nodes, without waiting for anything.
///
/// A user's doings are counted here, and taken in lots from the user's bucket in Redis; what Redis answers holds from then
/// on. So a user gets a little more than its rate, most calls cost no round trip, and while Redis is out of reach nobody
/// is bounded: that is counted.
package final class UserRate: Service {
    package enum Kind: String, Sendable, CaseIterable {
        case calls, messages
    }

    /// What a user did since its bucket was asked, and until when the bucket is empty.
    private struct Account {
        var count = 0
        var blockedUntil: ContinuousClock.Instant?
    }

    private struct Report: Sendable {
        let user: String
        let count: Int
        let at: ContinuousClock.Instant
    }

    /// Users that are held here; at the bound, all that may go on are forgotten, with less than a lot each, and if
    /// none may, a newcomer is not bounded.
    private static let mostUsers = 50_000
    /// Lots that wait for Redis; at the bound, a lot is not counted.
    private static let mostReports = 10_000
    private static let largestLot = 16
    /// How long a lot may wait for Redis; later it says nothing about what the user does now, and is not counted.
    private static let longestWait = Duration.seconds(5)

    private let kind: Kind
    private let perSecond: Int
    private let burst: Int
    private let lot: Int
    private let buckets: TokenBuckets
    private let now: @Sendable () -> ContinuousClock.Instant
    private let accounts = Mutex<[ExactText: Account]>([:])
    private let reports: AsyncStream<Report>
    private let reporter: AsyncStream<Report>.Continuation
    private let refused: Counter
    private let unchecked: Counter

    /// - Parameters:
    ///   - perSecond: what a user may do in the long run.
    ///   - burst: what a user may do at once.
    package init(
        kind: Kind,
        perSecond: Int,
        burst: Int,
        buckets: TokenBuckets,
        metrics: any MetricsFactory = MetricsSystem.factory,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.kind = kind
        self.perSecond = perSecond
        self.burst = burst
        self.lot = max(1, min(Self.largestLot, burst / 4))
        self.buckets = buckets
        self.now = now
        (self.reports, self.reporter) = AsyncStream.makeStream(
            bufferingPolicy: .bufferingOldest(Self.mostReports)
        )
        let dimensions = [("kind", kind.rawValue)]
        self.refused = Counter(label: "carillon.rate.refused", dimensions: dimensions, factory: metrics)
        self.unchecked = Counter(label: "carillon.rate.unchecked", dimensions: dimensions, factory: metrics)
    }

    /// Notes what a user does, and tells how long it has to wait before that; nil if it need not.
    package func delay(_ user: String, count: Int = 1) -> Duration? {
        let key = ExactText(user)
        let now = self.now()
        let (delay, due) = self.accounts.withLock { accounts -> (Duration?, Int) in
            if accounts.count >= Self.mostUsers, accounts[key] == nil {
                accounts = accounts.filter { ($0.value.blockedUntil ?? now) > now }
                guard accounts.count < Self.mostUsers else { return (nil, 0) }
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
        await withGracefulShutdownHandler {
            for await report in self.reports {
                if Task.isShuttingDownGracefully || Task.isCancelled { break }
                await self.take(report)
            }
        } onGracefulShutdown: {
            self.reporter.finish()
        }
    }

    private func take(_ report: Report) async {
        guard self.now() - report.at < Self.longestWait else { return self.unchecked.increment() }
        do {
            let delay = try await self.buckets.take(
                report.count,
                kind: self.kind.rawValue,
                user: report.user,
                perSecond: self.perSecond,
                burst: self.burst
            )
            guard delay > 0 else { return }
            let until = self.now() + .milliseconds(delay)
            self.accounts.withLock { $0[ExactText(report.user), default: Account()].blockedUntil = until }
        } catch {
            self.unchecked.increment()
        }
    }
}
