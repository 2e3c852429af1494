// Carillon · ReceivedLog.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Logging
import NIOHPACK
import Synchronization

/// The accepted messages, the newest `logLimit` of them, and counts of everything.
final class ReceivedLog: Sendable {
    private struct Entry {
        let provider: ReceivedMessage.Provider
        let project: String?
        let token: String
        let headers: HPACKHeaders
        let body: [UInt8]
        let at: Date
    }

    /// What was accepted, kept, lost and refused.
    struct Counts {
        var accepted: [String: Int] = [:]
        var refused: [String: Int] = [:]
        var kept = 0
        var dropped = 0
        var next = 0
    }

    private struct State {
        /// A ring once it is full: the entry of sequence n lies at (n - base) % limit.
        var ring: [Entry] = []
        var base = 0
        var next = 0
        var accepted: [ReceivedMessage.Provider: Int] = [:]
        var dropped = 0
        var refused: [String: Int] = [:]
        /// Valid requests whose connection was cut in place of an answer, the oldest first.
        var cut: [Entry] = []
    }

    private static let mostCut = 1_000

    private let limit: Int
    private let logger: Logger
    private let state = Mutex(State())

    init(_ configuration: SandboxConfiguration, logger: Logger) {
        self.limit = configuration.recordsMessages ? max(0, configuration.logLimit) : 0
        self.logger = logger
    }

    func accept(
        _ provider: ReceivedMessage.Provider, project: String? = nil, token: String, request: SandboxRequest,
        at now: Date
    ) {
        var headers = request.headers
        if self.limit > 0 { headers.remove(name: "authorization") }
        self.accept(provider, project: project, token: token, headers: headers, payload: request.body, at: now)
    }

    func accept(
        _ provider: ReceivedMessage.Provider, project: String? = nil, token: String, headers: HPACKHeaders,
        payload: [UInt8], at now: Date
    ) {
        let isFirstLoss = self.state.withLock { state in
            state.accepted[provider, default: 0] += 1
            defer { state.next += 1 }
            guard self.limit > 0 else { return false }
            let entry = Entry(
                provider: provider, project: project, token: token, headers: headers, body: payload, at: now)
            guard state.ring.count >= self.limit else {
                state.ring.append(entry)
                return false
            }
            state.ring[(state.next - state.base) % self.limit] = entry
            state.dropped += 1
            return state.dropped == 1
        }
        if isFirstLoss {
            self.logger.warning(
                "log of accepted messages is full, dropping the oldest", metadata: ["limit": "\(self.limit)"])
        }
    }

    func refuse(_ provider: ReceivedMessage.Provider, name: String) {
        self.state.withLock { $0.refused["\(provider) \(name)", default: 0] += 1 }
    }

    /// Keeps a valid request that gets no answer as its connection is cut.
    func cut(
        _ provider: ReceivedMessage.Provider, project: String? = nil, token: String, request: SandboxRequest,
        at now: Date
    ) {
        guard self.limit > 0 else { return }
        var headers = request.headers
        headers.remove(name: "authorization")
        let entry = Entry(
            provider: provider, project: project, token: token, headers: headers, body: request.body, at: now)
        self.state.withLock { state in
            if state.cut.count < Self.mostCut { state.cut.append(entry) }
        }
    }

    /// The requests that were cut, oldest first; their sequences are their own.
    var cutMessages: [ReceivedMessage] {
        self.state.withLock { $0.cut }.enumerated().map { Self.message($0.offset, $0.element) }
    }

    /// The kept messages from a sequence on, oldest first.
    func messages(since sequence: Int, limit: Int) -> [ReceivedMessage] {
        let entries = self.state.withLock { state in
            let first = max(sequence, state.next - state.ring.count)
            let last = min(state.next, first.addingReportingOverflow(limit).overflow ? .max : first + limit)
            return (first < last ? first..<last : 0..<0).map { number in
                (number, state.ring[(number - state.base) % self.limit])
            }
        }
        return entries.map { Self.message($0.0, $0.1) }
    }

    private static func message(_ number: Int, _ entry: Entry) -> ReceivedMessage {
        let headers = entry.headers.compactMap { name, value, _ in
            name.hasPrefix(":") ? nil : (name, value)
        }
        return ReceivedMessage(
            provider: entry.provider, project: entry.project, token: entry.token,
            headers: Dictionary(headers) { "\($0), \($1)" }, payload: Self.payload(entry), body: entry.body,
            at: entry.at, sequence: number)
    }

    /// The body as JSON.
    ///
    /// A push service cannot read what it takes; the list shows it decrypted, as a JSON string if
    /// it is no JSON.
    private static func payload(_ entry: Entry) -> [UInt8] {
        guard entry.provider == .webpush else { return entry.body }
        guard let text = try? SandboxSubscription.Keys(id: entry.token).open(entry.body) else {
            return Array("null".utf8)
        }
        let isJSON = (try? JSONReader.parse(text)) != nil
        return isJSON ? text : Array(JSONText.quoted(String(decoding: text, as: UTF8.self)).utf8)
    }

    var counts: Counts {
        self.state.withLock { state in
            let accepted = ReceivedMessage.Provider.allCases.map { ($0.rawValue, state.accepted[$0] ?? 0) }
            return Counts(
                accepted: Dictionary(uniqueKeysWithValues: accepted), refused: state.refused, kept: state.ring.count,
                dropped: state.dropped, next: state.next)
        }
    }

    /// Empties the log and zeroes the counts; sequences go on.
    func reset() {
        self.state.withLock { state in
            state = State(base: state.next, next: state.next)
        }
    }
}
