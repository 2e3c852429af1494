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
