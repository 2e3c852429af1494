// Carillon · GatewayError.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The error of every call of this library.
public enum GatewayError: Error, Equatable, Sendable {
    /// The gateway refused the call and changed nothing.
    case refused(Problem)
    /// No user is logged in: the token provider returned nil.
    case signedOut
    /// The user has too many newer connections. Connect again when the user returns to this one.
    case displaced
    /// The token provider failed. You may repeat the call.
    case noToken(String)
    /// No answer came, so the change may or may not have happened.
    ///
    /// You may repeat any call except ``Gateway/reportAction(_:of:)``, which would report a second
    /// press, and ``Gateway/markAllRead()``, which would also mark what came since the first call.
    case unreachable(String)
    /// The answer does not come from a gateway.
    case invalidAnswer(String)
    /// An argument is invalid; the text names it and the rule.
    case invalidArgument(String)
    /// Too many changes wait for confirmation by the socket; see ``Inbox/Limits/changes``.
    case tooManyChanges
    /// The caller's task was cancelled.
    case cancelled
}

/// A problem document (RFC 9457) of the gateway, or of a proxy in front of it.
public struct Problem: Equatable, Sendable {
    /// A field that is invalid.
    public struct Fault: Decodable, Equatable, Sendable {
        /// The name of the field, such as `locale`.
        public let field: String
        /// The broken rule, in words.
        public let reason: String
    }

    /// The HTTP status.
    public let status: Int
    /// The reason in words, for developers.
    public let detail: String
    /// The invalid fields; empty if the fault is not in a field.
    public let faults: [Fault]
    /// The wait before a retry, if the gateway gave one.
    public let retryAfter: Duration?
    /// The id of the request in the gateway's log.
    public let requestID: String?

    private struct Document: Decodable {
        let detail: String?
        let title: String?
        let errors: [Fault]?
    }

    init(_ answer: GatewayAnswer) {
        let document = try? JSON.decode(Document.self, from: answer.body)
        self.status = answer.status
        self.detail = document?.detail ?? document?.title ?? "no reason given"
        self.faults = document?.errors ?? []
        self.retryAfter = answer["retry-after"].flatMap { Int($0) }.map { .seconds($0) }
        self.requestID = answer["x-request-id"]
    }
}

extension Problem: CustomStringConvertible {
    /// The status and the faults, or the detail if there are none.
    public var description: String {
        let faults = self.faults.map { "\($0.field): \($0.reason)" }.joined(separator: "; ")
        return "the gateway answered \(self.status): \(faults.isEmpty ? self.detail : faults)"
    }
}

extension GatewayError: CustomStringConvertible, LocalizedError {
    /// The error in words, for developers.
    public var description: String {
        switch self {
        case .refused(let problem): problem.description
        case .signedOut: "no user is logged in: the token provider has no token"
        case .displaced: "the user has too many newer connections; connect again when the user returns"
        case .noToken(let reason): "the token provider failed: \(reason)"
        case .unreachable(let reason): "no answer from the gateway: \(reason)"
        case .invalidAnswer(let reason): "the answer is not one of a gateway: \(reason)"
        case .invalidArgument(let reason): reason
        case .tooManyChanges: "too many changes wait for their confirmation; try again once connected"
        case .cancelled: "the task was cancelled"
        }
    }

    /// The same as ``description``.
    public var errorDescription: String? { self.description }
}
