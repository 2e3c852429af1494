// Carillon · Credentials.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Synchronization

/// A credential that is renewed before it expires, once for all concurrent callers.
///
/// A valid credential is returned at once, even while a renewal runs or fails.
actor CredentialCache {
    struct Credential: Sendable {
        let text: String
        /// The time from which the credential is renewed.
        let renewAt: Timestamp
        let expiresAt: Timestamp
    }

    private struct Failure {
        let error: any Error
        /// The time of the next attempt.
        let until: Timestamp
    }

    /// The pause after a failed renewal; doubles with each further failure while the old credential
    /// is valid.
    private static let pause: Duration = .seconds(30)
    private static let longestPause: Duration = .seconds(300)
    /// The pause after an outage without a valid credential; doubles with each further outage.
    private static let outagePause: Duration = .seconds(1)
    private static let longestOutagePause: Duration = .seconds(30)
    /// The clock has stepped back if it is further behind a past moment than this.
    private static let step: Duration = .seconds(5)

    private let leastAge: Duration
    private let now: @Sendable () -> Timestamp
    private let logger: Logger
    private let make: @Sendable (Timestamp) async throws -> Credential
    private var current: Credential?
    private var madeAt: Timestamp?
    private var making: Task<Credential, any Error>?
    private var failure: Failure?
    /// The number of failures in a row.
    private var failures = 0

    /// - Parameters:
    ///   - leastAge: the minimum age of a credential before it may be replaced.
    ///   - logger: logs each failure, which a pause follows.
    ///   - make: creates a credential; its errors must hold no secret, and a ``CredentialOutage``
    ///     is temporary.
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

    /// Returns the credential; waits only if none is valid.
    ///
    /// - Throws: the error of the failed creation, repeated at once during the pause after it.
    func get() async throws -> String {
        let now = self.now()
        // A pause that would last longer is left from before the clock stepped back.
        let isPausing = self.failure.map { now < $0.until && $0.until - now <= Self.longestPause } ?? false
        if let current = self.valid(at: now) {
            if now >= current.renewAt, self.making == nil, !isPausing { self.start(now) }
            return current.text
        }
        if let making { return try await making.value.text }
        if let failure, isPausing { throw failure.error }
        return try await self.start(now).value.text
    }

    /// Makes the next call renew the credential if `text` is the current one and old enough.
    ///
    /// - Returns: whether a different credential is available now.
    func invalidate(_ text: String) -> Bool {
        guard self.current?.text == text else { return true }
        let now = self.now()
        guard let madeAt, madeAt + self.leastAge <= now || madeAt - now > Self.step else { return false }
        self.current = nil
        // The pause applied only while the old one was valid.
        self.failure = nil
        return true
    }

    /// Returns whether another credential has replaced `text`.
    func hasReplaced(_ text: String) -> Bool {
        self.current.map { $0.text != text } ?? false
    }

    /// Returns the credential unless it has expired.
    ///
    /// One made later than now, before the clock stepped back, counts as expired: the server may
    /// reject its times, and it would be kept for too long.
    private func valid(at now: Timestamp) -> Credential? {
        guard let current, let madeAt, madeAt - now <= Self.step, now < current.expiresAt else { return nil }
        return current
    }

    @discardableResult
    private func start(_ now: Timestamp) -> Task<Credential, any Error> {
        // An unstructured task: cancelling one caller must not cancel the renewal for the others.
        let task = Task<Credential, any Error> {
            defer { self.making = nil }
            do {
                let fresh = try await self.make(now)
                self.store(fresh, madeAt: now)
                return fresh
            } catch {
                self.recordFailure(error)
                throw error
            }
        }
        self.making = task
        return task
    }

    private func store(_ fresh: Credential, madeAt moment: Timestamp) {
        if self.failures > 0 { self.logger.notice("credential renewed") }
        self.current = fresh
        self.madeAt = moment
        self.failure = nil
        self.failures = 0
    }

    private func recordFailure(_ error: any Error) {
        let now = self.now()
        let factor = 1 << min(self.failures, 10)
        self.failures += 1
        let until: Timestamp
        if let current = self.valid(at: now) {
            until = min(now + min(Self.pause * factor, Self.longestPause), current.expiresAt)
        } else if error is CredentialOutage {
            until = now + min(Self.outagePause * factor, Self.longestOutagePause)
        } else {
            // No doubling, so that a fixed configuration works again soon.
            until = now + Self.pause
        }
        self.failure = Failure(error: error, until: until)
        self.logger.warning(
            "could not obtain a credential; retrying", metadata: ["error": "\(error)", "until": "\(until.rfc3339)"])
    }
}

/// Credentials shared by all channels with the same key.
///
/// Apple counts the tokens of a key across apps, and accepts no second one within 20 minutes on a
/// connection.
final class SharedCredentials: Sendable {
    /// Keys change rarely; beyond this number the whole cache is rebuilt.
    private static let capacity = 100

    private let caches = Mutex<[String: CredentialCache]>([:])

    init() {}

    /// Returns the cache of a key's credential; creates it if needed.
    func cache(of key: String, make: () -> CredentialCache) -> CredentialCache {
        self.caches.withLock { caches in
            if let known = caches[key] { return known }
            if caches.count >= Self.capacity { caches.removeAll() }
            let cache = make()
            caches[key] = cache
            return cache
        }
    }
}

/// The fault of a credential or setting; never holds any of it.
package struct CredentialFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// The name of the setting, such as `credentials`.
    package let setting: String?
    package let description: String

    package init(_ description: String, setting: String? = nil) {
        self.description = description
        self.setting = setting
    }

    /// Returns the value of `read`; gives its error a setting's name, unless it already has one.
    static func of<Value>(_ setting: String, _ read: () throws -> Value) throws(CredentialFault) -> Value {
        do {
            return try read()
        } catch {
            throw CredentialFault("\(error)", setting: (error as? CredentialFault)?.setting ?? setting)
        }
    }
}

extension [String: String] {
    /// Returns a required setting.
    func required(_ name: String) throws(CredentialFault) -> String {
        guard let text = self[name] else { throw CredentialFault("is missing", setting: name) }
        return text
    }
}

/// The token endpoint is unreachable or fails.
///
/// Temporary: the configuration is not at fault.
struct CredentialOutage: Error, Sendable, Equatable, CustomStringConvertible {
    /// A status such as `503`, or the reason for no answer, such as `timeout`.
    let cause: String

    init(_ cause: String) {
        self.cause = cause
    }

    /// The reason in records and metrics.
    var reason: String { "token_endpoint_\(self.cause)" }

    var description: String { self.reason }
}
