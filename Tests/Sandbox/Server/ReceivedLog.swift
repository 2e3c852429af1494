// Carillon · ReceivedLog.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Logging
import NIOHPACK
import Synchronization

/// A message that the sandbox accepted.
package struct ReceivedMessage: Sendable {
    /// The provider that accepted it.
    package enum Provider: String, Sendable, CaseIterable {
        case fcm, apns, webpush, email, webhook
    }

    package let provider: Provider
    /// FCM: the project of the path and of the access token.
    package let project: String?
    /// The target: the device token; FCM's topic, condition or installation id; the subscription's
    /// name (Web Push); the address (e-mail); the token (webhook).
    package let token: String
    /// The request's headers in lowercase, without the credential; for e-mail the unfolded header
    /// fields.
    package let headers: [String: String]
    /// The body as JSON.
    ///
    /// Web Push: decrypted, a JSON string if it is not JSON, `null` if it cannot be decrypted.
    /// E-mail: sender, subject, text and HTML.
    package let payload: [UInt8]
    /// The raw body of the request.
    package let body: [UInt8]
    /// The time of receipt.
    package let at: Date
    /// Its number since the start, from 0.
    package let sequence: Int
}

/// The newest `logLimit` accepted messages, and counts of all requests.
final class ReceivedLog: Sendable {
    private struct Entry {
        let provider: ReceivedMessage.Provider
        let project: String?
        let token: String
        let headers: HPACKHeaders
        let body: [UInt8]
        let at: Date
    }

    /// Counts of messages; `next` is the next sequence.
    struct Counts {
        var accepted: [String: Int] = [:]
        var refused: [String: Int] = [:]
        var kept = 0
        var dropped = 0
        var next = 0
    }

    private struct State {
        /// A ring buffer once full: the entry with sequence n is at (n - base) % limit.
        var ring: [Entry] = []
        var base = 0
        var next = 0
        var accepted: [ReceivedMessage.Provider: Int] = [:]
        var dropped = 0
        var refused: [String: Int] = [:]
        /// Valid requests whose connection was cut instead of an answer, oldest first.
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
                "message log is full; dropping the oldest messages", metadata: ["limit": "\(self.limit)"])
        }
    }

    func refuse(_ provider: ReceivedMessage.Provider, name: String) {
        self.state.withLock { $0.refused["\(provider) \(name)", default: 0] += 1 }
    }

    /// Records a valid request whose connection is cut instead of an answer.
    func cut(
        _ provider: ReceivedMessage.Provider, project: String? = nil, token: String, request: SandboxRequest,
        at now: Date
    ) {
        var headers = request.headers
        headers.remove(name: "authorization")
        self.cut(provider, project: project, token: token, headers: headers, payload: request.body, at: now)
    }

    func cut(
        _ provider: ReceivedMessage.Provider, project: String? = nil, token: String, headers: HPACKHeaders,
        payload: [UInt8], at now: Date
    ) {
        guard self.limit > 0 else { return }
        let entry = Entry(provider: provider, project: project, token: token, headers: headers, body: payload, at: now)
        self.state.withLock { state in
            if state.cut.count < Self.mostCut { state.cut.append(entry) }
        }
    }

    /// The requests whose connection was cut, oldest first, with sequences of their own.
    var cutMessages: [ReceivedMessage] {
        self.state.withLock { $0.cut }.enumerated().map { Self.message($0.offset, $0.element) }
    }

    /// Returns the recorded messages from a sequence on, oldest first.
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

    /// Returns the body as JSON.
    ///
    /// A Web Push body is decrypted; text that is not JSON becomes a JSON string.
    private static func payload(_ entry: Entry) -> [UInt8] {
        guard entry.provider == .webpush else { return entry.body }
        guard let text = try? SandboxSubscription.Keys(id: entry.token).open(entry.body) else {
            return Array("null".utf8)
        }
        let isJSON = (try? JSONParser.parse(text)) != nil
        return isJSON ? text : JSONWriter.bytes(of: .string(String(decoding: text, as: UTF8.self)))
    }

    var counts: Counts {
        self.state.withLock { state in
            let accepted = ReceivedMessage.Provider.allCases.map { ($0.rawValue, state.accepted[$0] ?? 0) }
            return Counts(
                accepted: Dictionary(uniqueKeysWithValues: accepted), refused: state.refused, kept: state.ring.count,
                dropped: state.dropped, next: state.next)
        }
    }

    /// Empties the log and resets the counts; sequences continue.
    func reset() {
        self.state.withLock { state in
            state = State(base: state.next, next: state.next)
        }
    }
}
