// Carillon · SharedReading.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes

/// Counts that take long, cached and shared by concurrent callers.
///
/// Each instance runs one count at a time, because inboxes use the same connections. A value is
/// cached for 20 times as long as its count took, within 5 to 200 s.
actor SharedReading<Key: Hashable & Sendable, Value: Sendable> {
    private typealias Reading = Task<(value: Value, took: Duration), any Error>

    private let lifetime: Duration = .seconds(5)
    /// A count takes 10 s at most; a longer one means that the process stalled.
    private let longestLifetime: Duration = .seconds(200)
    /// A value stays for this many times the duration of its reading.
    private let rest = 20
    private let mostKnown = 32
    /// The most readings that run or wait.
    private let mostReading = 8

    private let read: @Sendable (Key) async throws -> Value
    private let instant: @Sendable () -> ContinuousClock.Instant
    private var known: [Key: (until: ContinuousClock.Instant, value: Value)] = [:]
    private var reading: [Key: Reading] = [:]
    /// The newest reading; the next one waits for it.
    private var last: Reading?

    init(
        _ read: @escaping @Sendable (Key) async throws -> Value,
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.read = read
        self.instant = instant
    }

    /// Returns the cached value of a key, or reads it.
    ///
    /// - Throws: errors of the reading; ``Problem`` 503 if too many readings wait.
    func value(_ key: Key) async throws -> Value {
        if let known = self.known[key], self.instant() < known.until { return known.value }
        if let reading = self.reading[key] { return try await reading.value.value }
        guard self.reading.count < self.mostReading else {
            throw Problem(.serviceUnavailable, "too many counts are waiting", retryAfter: 5)
        }
        let read = self.read
        let instant = self.instant
        let before = self.last
        let task = Reading {
            _ = await before?.result
            let start = instant()
            let value = try await read(key)
            return (value: value, took: instant() - start)
        }
        self.last = task
        self.reading[key] = task
        defer { self.reading[key] = nil }
        let (value, took) = try await task.value
        let end = self.instant()
        self.known = self.known.filter { end < $0.value.until }
        if self.known.count < self.mostKnown {
            let rest = min(max(self.lifetime, took * self.rest), self.longestLifetime)
            self.known[key] = (end + rest, value)
        }
        return value
    }
}
