// Carillon · ProviderBoard.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The state of a dispatcher's calls to a provider for one app.
package struct ProviderState: Sendable, Equatable {
    /// The state of a circuit breaker.
    package enum Breaker: String, Sendable, CaseIterable {
        case closed, open, probing
    }

    package let provider: Provider
    package let app: String
    package let dispatcher: String
    package let breaker: Breaker
    /// The end of the pause; nil unless the breaker is open.
    package let until: Timestamp?
    /// Calls in flight.
    package let inFlight: Int

    package init(
        provider: Provider,
        app: String,
        dispatcher: String,
        breaker: Breaker,
        until: Timestamp?,
        inFlight: Int
    ) {
        self.provider = provider
        self.app = app
        self.dispatcher = dispatcher
        self.breaker = breaker
        self.until = until
        self.inFlight = inFlight
    }
}

/// The states and the summed counts of all live dispatchers.
package struct ProviderReport: Sendable {
    package fileprivate(set) var states: [ProviderState] = []
    package fileprivate(set) var counts: [ProviderCounts] = []
    /// The live dispatchers, even those without providers.
    package fileprivate(set) var dispatchers: Set<String> = []

    /// Whether a dispatcher has a provider for an app, or for any; true if no dispatcher is live.
    package func serves(_ provider: Provider, app: String? = nil) -> Bool {
        guard !self.dispatchers.isEmpty else { return true }
        return self.states.contains { $0.provider == provider && (app == nil || $0.app == app) }
    }

    /// Whether every circuit breaker of a provider's app is open or probing on every dispatcher;
    /// false if there is none.
    ///
    /// - Parameter app: the app; nil for all apps of the provider.
    package func isUnavailable(_ provider: Provider, app: String?) -> Bool {
        let states = self.states.filter { $0.provider == provider && (app == nil || $0.app == app) }
        return !states.isEmpty && states.allSatisfy { $0.breaker != .closed }
    }
}

/// The provider states that dispatchers publish: a hash with one field per dispatcher, which
/// expires by age.
package struct ProviderBoard: Sendable {
    private static let validity: Duration = .seconds(20)
    /// The format of a field: format number and time, then one line per state and per app's counts.
    ///
    /// Readers skip other lines.
    private static let format = "1"

    let live: Live

    /// Publishes the states of a dispatcher's providers and its counts since it started.
    package func publish(
        _ states: [ProviderState],
        counts: [ProviderCounts] = [],
        dispatcher: String,
        now: Timestamp
    ) async throws(RedisError) {
        var lines = ["\(Self.format) \(now.milliseconds)"]
        for state in states {
            let until = state.until.map { String($0.milliseconds) } ?? "-"
            lines.append(
                "\(state.provider.rawValue) \(state.breaker.rawValue) \(until) \(state.inFlight) \(state.app)")
        }
        lines += counts.map(\.line)
        let text = lines.joined(separator: "\n")
        try await self.live.connection.send("HSET", .text(self.live.keys.providers), .text(dispatcher), .text(text))
    }

    /// Removes a dispatcher's field.
    package func remove(_ dispatcher: String) async throws(RedisError) {
        try await self.live.connection.send("HDEL", .text(self.live.keys.providers), .text(dispatcher))
    }

    /// Returns the report of all live dispatchers.
    ///
    /// - Parameter removesStale: whether to remove stale fields.
    package func report(now: Timestamp, removesStale: Bool) async throws(RedisError) -> ProviderReport {
        let fields = try await self.live.connection.send("HGETALL", .text(self.live.keys.providers)).strings()
        var report = ProviderReport()
        var sums: [String: ProviderCounts] = [:]
        for index in stride(from: 0, to: fields.count - 1, by: 2) {
            let lines = fields[index + 1].split(separator: "\n")
            let head = lines.first?.split(separator: " ") ?? []
            guard head.count == 2, head[0] == Self.format, let moment = Int64(head[1]) else { continue }
            guard now - Timestamp(milliseconds: moment) < Self.validity else {
                if removesStale { try await self.remove(fields[index]) }
                continue
            }
            report.dispatchers.insert(fields[index])
            for line in lines.dropFirst() {
                if let state = Self.state(line, dispatcher: fields[index]) { report.states.append(state) }
                guard let counts = ProviderCounts(line: line) else { continue }
                let key = "\(counts.provider.rawValue) \(counts.app)"
                sums[key, default: ProviderCounts(provider: counts.provider, app: counts.app)].add(counts)
            }
        }
        report.states.sort {
            ($0.provider.rawValue, $0.app, $0.dispatcher) < ($1.provider.rawValue, $1.app, $1.dispatcher)
        }
        report.counts = sums.values.sorted { ($0.provider.rawValue, $0.app) < ($1.provider.rawValue, $1.app) }
        return report
    }

    private static func state(_ line: Substring, dispatcher: String) -> ProviderState? {
        let parts = line.split(separator: " ", maxSplits: 4)
        guard parts.count == 5, let provider = Provider(rawValue: String(parts[0])),
            let breaker = ProviderState.Breaker(rawValue: String(parts[1])), let inFlight = Int(parts[3])
        else { return nil }
        return ProviderState(
            provider: provider,
            app: String(parts[4]),
            dispatcher: dispatcher,
            breaker: breaker,
            until: Int64(parts[2]).map { Timestamp(milliseconds: $0) },
            inFlight: inFlight
        )
    }
}

/// Counts of the attempts by one provider for one app.
package struct ProviderCounts: Sendable, Equatable {
    /// The upper bounds of the latency buckets in milliseconds; one more bucket holds the rest.
    package static let bounds: [Int64] = [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000]
    /// The number of distinct reasons; further ones count as ``other``.
    static let mostReasons = 32
    static let other = "other"

    package let provider: Provider
    package let app: String
    /// All attempts, retries included.
    package private(set) var sent = 0
    package private(set) var accepted = 0
    /// The number of rejections by reason.
    package private(set) var reasons: [String: Int] = [:]
    /// The number of attempts in each latency bucket.
    package private(set) var latencies: [Int]

    /// Attempts that were rejected, temporarily or for good.
    package var failed: Int { self.sent - self.accepted }

    package init(provider: Provider, app: String) {
        self.provider = provider
        self.app = app
        self.latencies = Array(repeating: 0, count: Self.bounds.count + 1)
    }

    /// Counts an attempt.
    ///
    /// - Parameter failure: the reason of a rejection; nil if the message was accepted.
    package mutating func record(failure: String?, took duration: Duration) {
        self.sent += 1
        let milliseconds = duration.inMilliseconds
        self.latencies[Self.bounds.firstIndex { milliseconds <= $0 } ?? Self.bounds.count] += 1
        guard let failure else {
            self.accepted += 1
            return
        }
        self.count(failure, 1)
    }

    /// Adds another dispatcher's counts.
    mutating func add(_ others: ProviderCounts) {
        self.sent += others.sent
        self.accepted += others.accepted
        for index in self.latencies.indices { self.latencies[index] += others.latencies[index] }
        // Sorted, so that every report keeps the same reasons within the limit.
        for (reason, count) in others.reasons.sorted(by: { $0.key < $1.key }) { self.count(reason, count) }
    }

    private mutating func count(_ reason: String, _ count: Int) {
        let isWord = (1...64).contains(reason.utf8.count) && reason.utf8.allSatisfy { Self.isPartOfWord($0) }
        // The last one is for ``other``.
        let hasRoom = self.reasons[reason] != nil || self.reasons.count < Self.mostReasons - 1
        self.reasons[isWord && hasRoom ? reason : Self.other, default: 0] += count
    }

    private static func isPartOfWord(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
            || "_:.-".utf8.contains(byte)
    }
}

extension ProviderCounts {
    /// The first word of a line of counts; no provider can have this name.
    private static let mark = "+"

    /// The line in the hash; the app's name comes last, as it may contain spaces.
    var line: String {
        let latencies = self.latencies.map { String($0) }.joined(separator: ",")
        let reasons = self.reasons.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: ",")
        return "\(Self.mark) \(self.provider.rawValue) \(self.sent) \(self.accepted) \(latencies) "
            + "\(reasons.isEmpty ? "-" : reasons) \(self.app)"
    }

    /// Reads a line of counts; nil for any other line, and for counts that no dispatcher reaches.
    init?(line: Substring) {
        let parts = line.split(separator: " ", maxSplits: 6)
        guard parts.count == 7, parts[0] == Self.mark, let provider = Provider(rawValue: String(parts[1])),
            let sent = Self.number(parts[2]), let accepted = Self.number(parts[3]), accepted <= sent
        else { return nil }
        let latencies = parts[4].split(separator: ",").compactMap { Self.number($0) }
        self.init(provider: provider, app: String(parts[6]))
        guard latencies.count == self.latencies.count else { return nil }
        self.sent = sent
        self.accepted = accepted
        self.latencies = latencies
        guard parts[5] != "-" else { return }
        var failed = 0
        for pair in parts[5].split(separator: ",") {
            let halves = pair.split(separator: "=")
            guard halves.count == 2, let count = Self.number(halves[1]) else { return nil }
            failed += count
            guard failed <= self.failed else { return nil }
            self.count(String(halves[0]), count)
        }
    }

    /// Returns nil for a number so large that a sum over dispatchers could overflow.
    private static func number(_ text: Substring) -> Int? {
        Int(text).flatMap { (0...1 << 40).contains($0) ? $0 : nil }
    }
}
