// Carillon · ProviderBoard.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// How a dispatcher's way to a provider stands, for one app.
package struct ProviderState: Sendable, Equatable {
    package enum Breaker: String, Sendable, CaseIterable {
        case closed, open, probing
    }

    package let provider: Provider
    package let app: String
    package let dispatcher: String
    package let breaker: Breaker
    /// Until when nothing is sent; nil unless it is open.
    package let until: Timestamp?
    /// Calls under way.
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

/// What all dispatchers say about their providers: a hash with a field a dispatcher, which is void when it is old.
package struct ProviderBoard: Sendable {
    private static let validity: Duration = .seconds(20)
    /// The format of a field: its number, the moment, then a line a state and a line for each app's counts; a line that is
    /// neither is passed over.
    private static let format = "1"

    let live: Live

    /// Says how a dispatcher's ways stand now, and what it has counted since it began.
    package func put(
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
        _ = try await self.live.connection.send("HSET", .text(self.live.keys.providers), .text(dispatcher), .text(text))
            .checked()
    }

    /// Takes a dispatcher's word away.
    package func remove(_ dispatcher: String) async throws(RedisError) {
        _ = try await self.live.connection.send("HDEL", .text(self.live.keys.providers), .text(dispatcher)).checked()
    }

    /// How all ways stand; what is old is removed.
    package func states(now: Timestamp) async throws(RedisError) -> [ProviderState] {
        try await self.report(now: now).states
    }

    /// How all ways stand, and the sums of what the dispatchers that are there have counted; what is old is removed.
    package func report(now: Timestamp) async throws(RedisError) -> (states: [ProviderState], counts: [ProviderCounts])
    {
        let fields = try await self.live.connection.send("HGETALL", .text(self.live.keys.providers)).strings()
        var states: [ProviderState] = []
        var sums: [String: ProviderCounts] = [:]
        for index in stride(from: 0, to: fields.count - 1, by: 2) {
            let lines = fields[index + 1].split(separator: "\n")
            let head = lines.first?.split(separator: " ") ?? []
            guard head.count == 2, head[0] == Self.format, let moment = Int64(head[1]) else { continue }
            guard now - Timestamp(milliseconds: moment) < Self.validity else {
                try await self.remove(fields[index])
                continue
            }
            for line in lines.dropFirst() {
                if let state = Self.state(line, dispatcher: fields[index]) { states.append(state) }
                guard let counts = ProviderCounts(line: line) else { continue }
                let key = "\(counts.provider.rawValue) \(counts.app)"
                sums[key, default: ProviderCounts(provider: counts.provider, app: counts.app)].add(counts)
            }
        }
        states.sort { ($0.provider.rawValue, $0.app, $0.dispatcher) < ($1.provider.rawValue, $1.app, $1.dispatcher) }
        let counts = sums.values.sorted { ($0.provider.rawValue, $0.app) < ($1.provider.rawValue, $1.app) }
        return (states, counts)
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

/// What came of the messages to one app by one provider.
package struct ProviderCounts: Sendable, Equatable {
    /// Upper bounds of the latencies' buckets in milliseconds; one more has what took longer.
    package static let bounds: [Int64] = [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000]
    /// Reasons that are told apart; the rest counts as ``other``.
    package static let mostReasons = 32
    package static let other = "other"

    package let provider: Provider
    package let app: String
    /// All tries, retries among them.
    package private(set) var sent = 0
    package private(set) var accepted = 0
    /// How often each reason was given for not accepting a message.
    package private(set) var reasons: [String: Int] = [:]
    /// How many tries took how long, by the bucket.
    package private(set) var latencies: [Int]

    /// What was not accepted, for now or for good.
    package var failed: Int { self.sent - self.accepted }

    package init(provider: Provider, app: String) {
        self.provider = provider
        self.app = app
        self.latencies = Array(repeating: 0, count: Self.bounds.count + 1)
    }

    /// Counts a try.
    ///
    /// - Parameter failure: why it was not accepted; nil if it was.
    package mutating func note(failure: String?, took duration: Duration) {
        self.sent += 1
        let milliseconds = duration.inMicroseconds / 1_000
        self.latencies[Self.bounds.firstIndex { milliseconds <= $0 } ?? Self.bounds.count] += 1
        guard let failure else {
            self.accepted += 1
            return
        }
        self.count(failure, 1)
    }

    /// Adds what another dispatcher has counted of the same.
    package mutating func add(_ others: ProviderCounts) {
        self.sent += others.sent
        self.accepted += others.accepted
        for index in self.latencies.indices { self.latencies[index] += others.latencies[index] }
        // In an order, so that the same ones are told apart each time.
        for (reason, count) in others.reasons.sorted(by: { $0.key < $1.key }) { self.count(reason, count) }
    }

    private mutating func count(_ reason: String, _ count: Int) {
        let isWord = (1...64).contains(reason.utf8.count) && reason.utf8.allSatisfy { Self.isPartOfWord($0) }
        // The one that is kept free is for the rest.
        let hasRoom = self.reasons[reason] != nil || self.reasons.count < Self.mostReasons - 1
        self.reasons[isWord && hasRoom ? reason : Self.other, default: 0] += count
    }

    private static func isPartOfWord(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
            || "_:.-".utf8.contains(byte)
    }
}

extension ProviderCounts {
    /// How a line of counts begins, which is no provider's word.
    private static let mark = "+"

    /// A line of the board; the app's name comes last, as it may have blanks.
    var line: String {
        let latencies = self.latencies.map { String($0) }.joined(separator: ",")
        let reasons = self.reasons.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: ",")
        return "\(Self.mark) \(self.provider.rawValue) \(self.sent) \(self.accepted) \(latencies) "
            + "\(reasons.isEmpty ? "-" : reasons) \(self.app)"
    }

    /// Nil if the line is another one.
    init?(line: Substring) {
        let parts = line.split(separator: " ", maxSplits: 6)
        guard parts.count == 7, parts[0] == Self.mark, let provider = Provider(rawValue: String(parts[1])),
            let sent = Int(parts[2]), let accepted = Int(parts[3])
        else { return nil }
        let latencies = parts[4].split(separator: ",").compactMap { Int($0) }
        self.init(provider: provider, app: String(parts[6]))
        guard latencies.count == self.latencies.count else { return nil }
        self.sent = sent
        self.accepted = accepted
        self.latencies = latencies
        guard parts[5] != "-" else { return }
        for pair in parts[5].split(separator: ",") {
            let halves = pair.split(separator: "=")
            guard halves.count == 2, let count = Int(halves[1]) else { return nil }
            self.count(String(halves[0]), count)
        }
    }
}
