// Carillon · GatewayError.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The error of every call of this library.
public enum GatewayError: Error, Equatable, Sendable {
    /// The gateway refused a call, which then changed nothing.
    case refused(Problem)
    /// No user is logged in: the token provider returned nil.
    case signedOut
    /// The user has too many newer connections. Connect again when the user returns to this one.
    case displaced
    /// The token provider failed. The call may be repeated.
    case noToken(String)
    /// No answer came. The call may have had its effect; it may be repeated, except for
    /// ``Gateway/reportAction(_:of:)``, which would report a second press.
    case unreachable(String)
    /// The answer is not one of a gateway.
    case invalidAnswer(String)
    /// An argument is invalid; the text names it.
    case invalidArgument(String)
    /// Too many of the user's changes wait for their confirmation; see ``Inbox``.
    case tooManyChanges
    /// The task that waited was cancelled.
    case cancelled
}

/// A problem document of the gateway (RFC 9457), or of a proxy before it.
public struct Problem: Equatable, Sendable {
    /// A field that is invalid.
    public struct Fault: Decodable, Equatable, Sendable {
        public let field: String
        public let reason: String
    }

    public let status: Int
    /// The reason in words, for developers.
    public let detail: String
    /// The invalid fields, each named; empty if the fault is none of a field.
    public let faults: [Fault]
    /// The time after which the call may succeed.
    public let retryAfter: Duration?
    /// The id under which the gateway's log says more.
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
    public var description: String {
        let faults = self.faults.map { "\($0.field): \($0.reason)" }.joined(separator: "; ")
        return "the gateway answered \(self.status): \(faults.isEmpty ? self.detail : faults)"
    }
}

extension GatewayError: CustomStringConvertible, LocalizedError {
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

    public var errorDescription: String? { self.description }
}
