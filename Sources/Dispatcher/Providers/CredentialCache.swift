// Carillon · CredentialCache.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging

/// A credential that is made anew before it expires, once however many ask for it.
///
/// While it is good it is handed out at once, also while a new one is being made or cannot be had.
actor CredentialCache {
    struct Credential: Sendable {
        let text: String
        /// From when on a new one is made.
        let renewAt: Timestamp
        let expiresAt: Timestamp
    }

    private struct Failure {
        let error: any Error
        /// Nobody tries before then.
        let until: Timestamp
    }

    /// After a failure; twice as long after each more while the old one serves.
    private static let pause: Duration = .seconds(30)
    private static let longestPause: Duration = .seconds(300)
    /// After an outage, and twice as long after each more, where nothing can be sent without a new one.
    private static let outagePause: Duration = .seconds(1)
    private static let longestOutagePause: Duration = .seconds(30)

    private let leastAge: Duration
    private let now: @Sendable () -> Timestamp
    private let logger: Logger
    private let make: @Sendable (Timestamp) async throws -> Credential
    private var current: Credential?
    private var madeAt: Timestamp?
    private var making: Task<Credential, any Error>?
    private var failure: Failure?
    /// How often in a row none could be had.
    private var failures = 0

    /// - Parameters:
    ///   - leastAge: how old a credential must be before another may be made in its place.
    ///   - logger: is told of failures, each of which is followed by a pause.
    ///   - make: what it throws says nothing secret; a ``CredentialOutage`` passes by itself.
    init(
        leastAge: Duration = .zero,
        now: @escaping @Sendable () -> Timestamp,
        logger: Logger,
        make: @escaping @Sendable (Timestamp) async throws -> Credential
    ) {
        self.leastAge = leastAge
        self.now = now
        self.logger = logger
        self.make = make
    }

    /// The credential; waits for a new one only if there is none that is good.
    ///
    /// - Throws: what making one threw, at once while the pause after that lasts.
    func get() async throws -> String {
        let now = self.now()
        let isPausing = self.failure.map { now < $0.until } ?? false
        if let current, now < current.expiresAt {
            if now >= current.renewAt, self.making == nil, !isPausing { self.start(now) }
            return current.text
        }
        if let making { return try await making.value.text }
        if let failure, isPausing { throw failure.error }
        return try await self.start(now).value.text
    }

    /// Makes the next call get a new one, if `text` is still the current one and old enough.
    ///
    /// - Returns: whether another one than `text` can be had now.
    func invalidate(_ text: String) -> Bool {
        guard self.current?.text == text else { return true }
        guard let madeAt, madeAt + self.leastAge <= self.now() else { return false }
        self.current = nil
        // The pause was for as long as the old one served.
        self.failure = nil
        return true
    }

    @discardableResult
    private func start(_ now: Timestamp) -> Task<Credential, any Error> {
        // Its own task, so that one caller's cancellation does not take it from the others.
        let task = Task<Credential, any Error> {
            defer { self.making = nil }
            do {
                let fresh = try await self.make(now)
                self.note(fresh, madeAt: now)
                return fresh
            } catch {
                self.note(error)
                throw error
            }
        }
        self.making = task
        return task
    }

    private func note(_ fresh: Credential, madeAt moment: Timestamp) {
        if self.failures > 0 { self.logger.notice("a credential could be had again") }
        self.current = fresh
        self.madeAt = moment
        self.failure = nil
        self.failures = 0
    }

    private func note(_ error: any Error) {
        let now = self.now()
        let factor = 1 << min(self.failures, 10)
        self.failures += 1
        let until: Timestamp
        if let current, now < current.expiresAt {
            until = min(now + min(Self.pause * factor, Self.longestPause), current.expiresAt)
        } else if error is CredentialOutage {
            until = now + min(Self.outagePause * factor, Self.longestOutagePause)
        } else {
            // Whoever mends what is refused does not wait longer for it.
            until = now + Self.pause
        }
        self.failure = Failure(error: error, until: until)
        self.logger.warning(
            "a credential cannot be had", metadata: ["error": "\(error)", "until": "\(until.rfc3339)"])
    }
}
