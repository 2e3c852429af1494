// Carillon · CredentialCache.swift
// SPDX-License-Identifier: Apache-2.0

import Model

/// A credential that is made anew before it expires, once however many ask for it.
actor CredentialCache {
    struct Credential: Sendable {
        let text: String
        /// From when on a new one is made.
        let renewAt: Timestamp
        let expiresAt: Timestamp
    }

    private let leastAge: Duration
    private let now: @Sendable () -> Timestamp
    private let make: @Sendable (Timestamp) async throws -> Credential
    private var current: Credential?
    private var madeAt: Timestamp?
    private var making: Task<Credential, any Error>?

    /// - Parameter leastAge: how old a credential must be before another may be made in its place.
    init(
        leastAge: Duration = .zero,
        now: @escaping @Sendable () -> Timestamp,
        make: @escaping @Sendable (Timestamp) async throws -> Credential
    ) {
        self.leastAge = leastAge
        self.now = now
        self.make = make
    }

    /// The credential; an old one serves until it expires while no new one can be had.
    func get() async throws -> String {
        let now = self.now()
        if let current, now < current.renewAt { return current.text }
        let task = self.making ?? self.start(now)
        do {
            return try await task.value.text
        } catch {
            if let current, now < current.expiresAt { return current.text }
            throw error
        }
    }

    /// Makes the next call get a new one, if `text` is still the current one and old enough.
    ///
    /// - Returns: whether another one than `text` can be had now.
    func invalidate(_ text: String) -> Bool {
        guard self.current?.text == text else { return true }
        guard let madeAt, madeAt + self.leastAge <= self.now() else { return false }
        self.current = nil
        return true
    }

    private func start(_ now: Timestamp) -> Task<Credential, any Error> {
        // Its own task, so that one caller's cancellation does not take it from the others.
        let task = Task {
            defer { self.making = nil }
            let fresh = try await self.make(now)
            self.current = fresh
            self.madeAt = now
            return fresh
        }
        self.making = task
        return task
    }
}
