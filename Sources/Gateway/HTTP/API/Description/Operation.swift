// Carillon · Operation.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A call as its route declares it: who may call, what it takes and what it answers.
///
/// The answers that calls have in common need no declaration: 500 on every call, 401, 429 and 503
/// on those with a token, 403 on those with a scope, 400, 413 and 422 on those with a body, and 400
/// on all of `/v1`.
struct Operation: Sendable {
    /// The scope that a call needs; the route refuses callers without it.
    enum Scope {
        /// None: any user, for themselves.
        case user
        /// A service, also one that may send only some jobs.
        case sender
        case service, admin
    }

    /// The name of the call in generated clients.
    let id: String
    let summary: String
    let details: String?
    let scope: Scope
    /// Whether a call with POST changes nothing.
    let isReadOnly: Bool
    let path: Fields
    let query: Fields
    let headers: Fields
    let body: Schema?
    let isBodyRequired: Bool
    let bodyTypes: [String]
    let answers: [Answer]
    /// The parameters of the query.
    let queryNames: Set<String>
    /// The members of the body.
    let bodyNames: Set<String>

    init(
        _ id: String,
        _ summary: String,
        _ details: String? = nil,
        scope: Scope = .user,
        isReadOnly: Bool = false,
        path: Fields = [:],
        query: Fields = [:],
        headers: Fields = [:],
        body: Schema? = nil,
        isBodyRequired: Bool = true,
        bodyTypes: [String] = ["application/json"],
        answers: [Answer]
    ) {
        self.id = id
        self.summary = summary
        self.details = details
        self.scope = scope
        self.isReadOnly = isReadOnly
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.isBodyRequired = isBodyRequired
        self.bodyTypes = bodyTypes
        self.answers = answers
        self.queryNames = query.names
        self.bodyNames = body?.names ?? []
    }
}

/// An answer that a call declares; an integer stands for the usual problem with that status.
struct Answer: Sendable, ExpressibleByIntegerLiteral {
    let status: Int
    /// Nil for the common text of the status.
    let text: String?
    let body: Schema?
    let type: String
    let headers: Fields

    init(
        _ status: Int,
        _ text: String?,
        _ body: Schema? = nil,
        type: String = "application/json",
        headers: Fields = [:]
    ) {
        self.status = status
        self.text = text
        self.body = body
        self.type = type
        self.headers = headers
    }

    init(integerLiteral status: Int) { self.init(status, nil) }

    static func ok(_ text: String, _ body: Schema, headers: Fields = [:]) -> Answer {
        Answer(200, text, body, headers: headers)
    }

    static func created(_ text: String, _ body: Schema) -> Answer { Answer(201, text, body) }
    static func accepted(_ text: String, _ body: Schema) -> Answer { Answer(202, text, body) }
    static func noContent(_ text: String) -> Answer { Answer(204, text) }
    static let done = Answer.noContent("Done.")
}

/// The problem documents of a group of calls.
struct ProblemStyle: Sendable {
    /// The names of the components.
    static let names = [
        400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 406: "NotAcceptable",
        409: "Conflict", 413: "ContentTooLarge", 422: "Unprocessable", 426: "UpgradeRequired",
        429: "TooManyRequests", 500: "InternalError", 503: "Unavailable",
    ]

    /// The prefix of the components' names.
    var prefix = ""
    let schema: Schema
    /// The status for an invalid query.
    var query = 400
    /// Whether calls with a token refuse parameters that their operation does not declare.
    var refusesUnknownParameters = false
    /// The status for invalid fields of a body.
    var body = 422
    /// The statuses that every call with a token may have.
    let always: [Int]
    /// The description of each status.
    let texts: [Int: String]
}
