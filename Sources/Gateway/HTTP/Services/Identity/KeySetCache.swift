// Carillon · KeySetCache.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Synchronization

/// The key set of the tokens' issuer: read again from time to time, and when a token names a key that is not in it.
///
/// What was read stays in use while its source is out of reach. While nothing has been read yet, tokens that need it are
/// answered with ``TokenFault/Code/unavailable``, and reading is tried again with backoff.
package final class KeySetCache: Service {
    /// When it is read.
    package struct Timing: Sendable {
        /// From one reading to the next.
        package var interval: Duration = .seconds(300)
        /// The least time between two readings, however many tokens name unknown keys.
        package var gap: Duration = .seconds(10)
        /// The waits after readings that failed.
        package var backoff = Backoff(base: .seconds(2), limit: .seconds(60))

        package init() {}
    }

    private struct State {
        var keys: KeySet?
        /// How often it was read.
        var reading: UInt64 = 0
        /// From when one is asked for.
        var isReading = false
        var hasFailed = false
        var failures = 0
        /// No reading for a token's sake begins before.
        var notBefore: ContinuousClock.Instant?
        /// How long until the next reading that nobody asks for.
        var pause: Duration
        var waiters: [CheckedContinuation<Void, Never>] = []
        var isFinished = false
    }

    /// How many tokens may wait for a reading; one more is answered at once.
    private static let mostWaiters = 4_096

    private let timing: Timing
    private let read: @Sendable () async throws(KeySetFault) -> [UInt8]
    private let uptime: @Sendable () -> ContinuousClock.Instant
    private let logger: Logger
    private let state: Mutex<State>
    private let bell = Bell()

    /// - Parameters:
    ///   - initial: what was read already; nil to begin with nothing.
    ///   - read: reads the document; has a deadline of its own.
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

    /// Changes with every reading that brought a set.
    var reading: UInt64 { self.state.withLock { $0.reading } }

    /// The keys that a token may be signed with, never none.
    ///
    /// - Throws: ``TokenFault``: `refused` if the set has no such key, `unavailable` if it cannot be known now.
    func candidates(
        _ algorithm: VerificationKey.Algorithm,
        kid: String?
    ) async throws(TokenFault) -> [VerificationKey] {
        if let known = self.known(algorithm, kid) { return known }
        await self.nextReading()
        if let known = self.known(algorithm, kid) { return known }
        guard self.state.withLock({ $0.keys != nil && !$0.hasFailed }) else {
            throw TokenFault(.unavailable, "the key set of the token's issuer is out of reach")
        }
        throw TokenFault("the token's key is not in its issuer's key set")
    }

    private func known(_ algorithm: VerificationKey.Algorithm, _ kid: String?) -> [VerificationKey]? {
        let found = self.state.withLock { $0.keys }?.candidates(algorithm, kid: kid) ?? []
        return found.isEmpty ? nil : found
    }

    /// Waits for the reading that is under way, or for one that may begin now; returns at once if it is too early for one.
    private func nextReading() async {
        await withCheckedContinuation { continuation in
            let (mustWait, mustRing) = self.state.withLock { state -> (Bool, Bool) in
                let isDue = state.notBefore.map { $0 <= self.uptime() } ?? true
                guard !state.isFinished, state.isReading || isDue, state.waiters.count < Self.mostWaiters else {
                    return (false, false)
                }
                state.waiters.append(continuation)
                defer { state.isReading = true }
                return (true, !state.isReading)
            }
            if mustRing { self.bell.ring() }
            if !mustWait { continuation.resume() }
        }
    }

    // MARK: Reading

    /// Reads until the service ends.
    package func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                await self.bell.wait(atMost: self.state.withLock { $0.pause })
                if !Task.isCancelled { await self.refresh() }
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
                // At least half of it: a source that is down is left in peace for a while.
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

    /// - Parameter before: what the reading before brought; nil if there was none, or if it failed.
    private func report(_ result: Result<KeySet, KeySetFault>, before: KeySet?) {
        switch result {
        case .success(let keys):
            IdentityMetrics.keySetReadings.increment()
            if before == nil { self.logger.info("key set read", metadata: ["keys.count": "\(keys.count)"]) }
            guard keys.passedOver != before?.passedOver else { return }
            for reason in keys.passedOver { self.logger.notice("key of the key set skipped", metadata: ["reason": "\(reason)"]) }
        case .failure(let fault):
            IdentityMetrics.keySetFailures.increment()
            self.logger.warning("key set not read", metadata: ["error": "\(fault)"])
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
