// Carillon · KeySetCache.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Metrics
import Operations
import ServiceLifecycle
import Synchronization

/// The key set of the token issuer, refreshed periodically and when a token names an unknown key.
///
/// The last good set stays in use while its source fails. Before the first success, tokens that
/// need the set get ``TokenFault/Code/unavailable``, and reads are retried with backoff.
package final class KeySetCache: Service {
    /// The intervals of reads.
    package struct Timing: Sendable {
        /// The time between two periodic reads.
        package var interval: Duration = .seconds(300)
        /// The shortest time between two reads, however many tokens name unknown keys.
        package var gap: Duration = .seconds(10)
        /// The backoff after failed reads.
        var backoff = Backoff(base: .seconds(2), limit: .seconds(60))

        package init() {}
    }

    private struct State {
        var keys: KeySet?
        /// The number of successful reads.
        var reading: UInt64 = 0
        /// Whether a read was requested or runs.
        var isReading = false
        var hasFailed = false
        var failures = 0
        /// The earliest time of a read on behalf of a token.
        var notBefore: ContinuousClock.Instant?
        /// The time until the next periodic read.
        var pause: Duration
        var waiters: [CheckedContinuation<Void, Never>] = []
        var isFinished = false
    }

    /// The most tokens that may wait for a read; further ones fail at once.
    private static let mostWaiters = 4_096

    private let timing: Timing
    private let read: @Sendable () async throws(KeySetFault) -> [UInt8]
    private let uptime: @Sendable () -> ContinuousClock.Instant
    private let logger: Logger
    private let state: Mutex<State>
    private let alarm = Alarm()

    /// - Parameters:
    ///   - initial: a set that was read before; nil for none.
    ///   - read: reads the document; must have its own timeout.
    package init(
        initial: KeySet?,
        timing: Timing = Timing(),
        logger: Logger,
        uptime: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        read: @escaping @Sendable () async throws(KeySetFault) -> [UInt8]
    ) {
        self.timing = timing
        self.read = read
        self.uptime = uptime
        self.logger = logger
        self.state = Mutex(
            State(
                keys: initial,
                notBefore: initial.map { _ in uptime() + timing.gap },
                pause: initial == nil ? .zero : timing.interval
            )
        )
    }

    // MARK: Tokens

    /// Whether a set was ever read.
    var hasKeys: Bool { self.state.withLock { $0.keys != nil } }

    /// Changes with every successful read.
    var reading: UInt64 { self.state.withLock { $0.reading } }

    /// Returns the candidate keys for a token's signature, at least one.
    ///
    /// - Throws: ``TokenFault``: `refused` if the set has no such key, `unavailable` if the set
    ///   cannot be read.
    func candidates(
        _ algorithm: VerificationKey.Algorithm,
        kid: String?
    ) async throws(TokenFault) -> [VerificationKey] {
        if let known = self.known(algorithm, kid) { return known }
        await self.nextReading()
        if let known = self.known(algorithm, kid) { return known }
        guard self.state.withLock({ $0.keys != nil && !$0.hasFailed }) else {
            throw TokenFault(.unavailable, "the issuer's key set cannot be read now")
        }
        throw TokenFault("the token's key is not in its issuer's key set")
    }

    private func known(_ algorithm: VerificationKey.Algorithm, _ kid: String?) -> [VerificationKey]? {
        let found = self.state.withLock { $0.keys }?.candidates(algorithm, kid: kid) ?? []
        return found.isEmpty ? nil : found
    }

    /// Waits for the running read or starts one; returns at once if a read is not due yet.
    ///
    /// After a failed read it starts one without waiting: that read probably fails too, after
    /// seconds, and waiting callers would hold up others.
    private func nextReading() async {
        await withCheckedContinuation { continuation in
            let (mustWait, mustRing) = self.state.withLock { state -> (Bool, Bool) in
                let isDue = state.notBefore.map { $0 <= self.uptime() } ?? true
                guard !state.isFinished, state.isReading || isDue, state.waiters.count < Self.mostWaiters else {
                    return (false, false)
                }
                defer { state.isReading = true }
                guard !state.hasFailed else { return (false, !state.isReading) }
                state.waiters.append(continuation)
                return (true, !state.isReading)
            }
            if mustRing { self.alarm.ring() }
            if !mustWait { continuation.resume() }
        }
    }

    // MARK: Reading

    /// Refreshes the set until the service ends.
    package func run() async throws {
        await cancelWhenGracefulShutdown {
            while true {
                await self.alarm.wait(atMost: self.state.withLock { $0.pause })
                if Task.isCancelled || Task.isShuttingDownGracefully { return }
                await self.refresh()
            }
        }
        self.finish()
    }

    private func refresh() async {
        self.state.withLock { $0.isReading = true }
        let result: Result<KeySet, KeySetFault>
        do throws(KeySetFault) {
            result = .success(try KeySet(try await self.read()))
        } catch {
            result = .failure(error)
        }
        let (waiters, before) = self.state.withLock { state in
            let before = state.hasFailed ? nil : state.keys
            switch result {
            case .success(let keys):
                state.keys = keys
                state.reading += 1
                state.hasFailed = false
                state.failures = 0
                state.pause = self.timing.interval
                state.notBefore = self.uptime() + self.timing.gap
            case .failure:
                state.hasFailed = true
                // Wait at least half of the backoff, so that a failing source can recover.
                let ceiling = self.timing.backoff.ceiling(attempt: state.failures)
                state.pause = ceiling / 2 + self.timing.backoff.delay(attempt: state.failures) / 2
                state.failures += 1
                state.notBefore = self.uptime() + state.pause
            }
            state.isReading = false
            defer { state.waiters = [] }
            return (state.waiters, before)
        }
        for waiter in waiters { waiter.resume() }
        self.report(result, before: before)
    }

    /// - Parameter before: the set of the last read; nil if there was none or it failed.
    private func report(_ result: Result<KeySet, KeySetFault>, before: KeySet?) {
        switch result {
        case .success(let keys):
            IdentityMetrics.keySetReadings.increment()
            if before == nil { self.logger.info("key set read", metadata: ["keys.count": "\(keys.count)"]) }
            guard keys.skipped != before?.skipped else { return }
            for reason in keys.skipped {
                self.logger.notice("skipped a key of the key set", metadata: ["reason": "\(reason)"])
            }
        case .failure(let fault):
            IdentityMetrics.keySetFailures.increment()
            self.logger.warning(
                "cannot read key set; keys read before stay valid", metadata: ["error": "\(fault)"])
        }
    }

    private func finish() {
        let waiters = self.state.withLock { state in
            state.isFinished = true
            state.hasFailed = true
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter.resume() }
    }
}

/// The metrics of identity.
enum IdentityMetrics {
    /// Refused tokens and tickets.
    static let refused = Counter(label: "carillon.tokens.refused")
    /// Tokens and tickets that could not be checked.
    static let unchecked = Counter(label: "carillon.tokens.unchecked")
    static let keySetReadings = Counter(label: "carillon.keyset.readings")
    static let keySetFailures = Counter(label: "carillon.keyset.failures")
    /// Users whose revocations are in memory.
    static let revocationsHeld = Meter(label: "carillon.revocations.held")

    static func count(_ fault: TokenFault) {
        switch fault.code {
        case .refused, .forbidden: Self.refused.increment()
        case .unavailable: Self.unchecked.increment()
        }
    }
}
