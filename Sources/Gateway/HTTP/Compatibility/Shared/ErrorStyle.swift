// Carillon · ErrorStyle.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Metrics

/// The error format of a system's clients.
///
/// Every body is a problem document (RFC 9457). Its `detail` lists each invalid field; `error` and
/// `message` repeat it for clients that read those.
struct ErrorStyle: Sendable {
    /// The name of the system in metrics.
    let system: String
    /// The status for invalid fields.
    let invalid: HTTPResponse.Status
    /// Whether `errors` is an object with an array of reasons per field, as in ASP.NET.
    var groupsFaults = false
    /// Whether `code`, `details` and `hint` accompany `message`, as in PostgREST.
    var hasCode = false

    static let hybrid = ErrorStyle(system: "socketio-hybrid", invalid: .unprocessableContent)
    static let allowance = ErrorStyle(system: "allowance", invalid: .badRequest, groupsFaults: true)
    static let news = ErrorStyle(system: "breaking-news", invalid: .unprocessableContent)
    static let tasks = ErrorStyle(system: "task-reminders", invalid: .badRequest)
    static let edge = ErrorStyle(system: "edge-scheduler", invalid: .badRequest, hasCode: true)

    /// The style of each path and of those below it, the longest path first.
    static let paths: [(segments: [Substring], style: ErrorStyle)] = {
        let paths: [(path: String, style: ErrorStyle)] = [
            ("api/notifications", .hybrid), ("api/push", .hybrid), ("api/push/apns", .tasks), ("api/push/gcm", .tasks),
            ("api/push/test", .tasks), ("api/v1/notifications", .allowance), ("api/v1/devices", .allowance),
            ("device-token", .news), ("rest/v1", .edge),
        ]
        return paths.map { path, style in (segments: path.split(separator: "/"), style: style) }
            .sorted { $0.segments.count > $1.segments.count }
    }()

    /// Returns the style of the longest of ``paths`` that contains a path.
    static func of(_ path: String) -> ErrorStyle? {
        let segments = path.split(separator: "/")
        return Self.paths.first { segments.starts(with: $0.segments) }?.style
    }

    func status(of problem: Problem) -> HTTPResponse.Status {
        problem.faults.isEmpty ? problem.status : self.invalid
    }

    func body(of problem: Problem) -> [UInt8] {
        let status = self.status(of: problem)
        let text =
            problem.faults.isEmpty
            ? problem.detail : problem.faults.map { "\($0.field) \($0.reason)" }.joined(separator: "; ")
        var writer = JSONWriter(capacity: 512)
        writer.beginObject()
        writer.member("type", "about:blank")
        writer.member("title", status.reasonPhrase)
        writer.member("status", status.code)
        for key in ["detail", "error", "message"] as [StaticString] {
            writer.key(key)
            writer.string(text)
        }
        if !problem.faults.isEmpty {
            writer.key("errors")
            if self.groupsFaults {
                self.writeGroups(problem, to: &writer)
            } else {
                problem.writeFaults(to: &writer)
            }
        }
        if self.hasCode {
            writer.member("code", problem.code ?? Self.code(of: status))
            writer.member("details", problem.details)
            writer.key("hint")
            writer.null()
        }
        writer.endObject()
        return writer.bytes
    }

    /// Returns PostgREST's code for a status, or PostgreSQL's where PostgREST forwards that.
    private static func code(of status: HTTPResponse.Status) -> String {
        switch status.code {
        case 400, 413: "PGRST102"
        case 401: "PGRST301"
        case 403: "42501"
        case 404: "PGRST205"
        case 405: "PGRST117"
        case 406: "PGRST116"
        case 409: "23505"
        case 503: "PGRST000"
        default: status.kind == .serverError ? "XX000" : String(status.code)
        }
    }

    private func writeGroups(_ problem: Problem, to writer: inout JSONWriter) {
        var fields: [String] = []
        var reasons: [String: [String]] = [:]
        for fault in problem.faults {
            if reasons[fault.field] == nil { fields.append(fault.field) }
            reasons[fault.field, default: []].append(fault.reason)
        }
        writer.beginObject()
        for field in fields {
            writer.key(escaping: field)
            writer.beginArray()
            for reason in reasons[field] ?? [] { writer.string(reason) }
            writer.endArray()
        }
        writer.endObject()
    }
}

// MARK: Description

extension ErrorStyle {
    private static let texts = [
        400: "The path, the query or the form of the body is invalid.",
        401: "The token is missing or invalid.",
        403: "The token does not allow this, or the cookie comes from an untrusted origin.",
        404: "It does not exist, or belongs to someone else.",
        413: "The body is longer than 256 KiB.",
        422: "Fields are invalid; each is named.",
        429: "The user exceeds the rate limit.",
        500: "An internal error; see the log.",
        503: "Redis or PostgreSQL is unreachable, a token cannot be checked, or a queue is full.",
    ]
    private static let edgeTexts = [
        403:
            "The row belongs to another user, the token does not allow this, or the cookie comes from an "
            + "untrusted origin.",
        406: "One row was expected, but there are none or several.",
        409: "A new token applies to one row, but the filter matches several.",
    ]

    /// How the description shows these errors.
    var problems: ProblemStyle {
        var texts = Self.texts
        if self.invalid == .badRequest {
            texts[400] = "The query, a header, the body or its fields are invalid; each field is named."
        }
        if self.hasCode { texts.merge(Self.edgeTexts) { _, own in own } }
        let prefix =
            self.hasCode ? "Edge" : self.groupsFaults ? "Allowance" : self.invalid == .badRequest ? "Tasks" : ""
        return ProblemStyle(
            prefix: prefix, schema: self.schema, query: self.invalid.code, body: self.invalid.code,
            always: [403, 429], texts: texts)
    }

    private var schema: Schema {
        let reasons = Schema.map(of: .list(of: .string, max: 100_000))("Reasons by field.")
        let fields: Fields = [
            "type": .string,
            "title": .string,
            "status": .integer,
            "detail": .string("The reason; names every invalid field."),
            "error": .string("Same as `detail`."),
            "message": .string("Same as `detail`."),
            "errors?": self.groupsFaults ? reasons : .faults,
        ]
        if self.groupsFaults { return Schema("AllowanceProblem", fields) }
        guard self.hasCode else { return Schema("Problem", fields) }
        let code: Fields = [
            "code": .string("The code of PostgREST or PostgreSQL, such as PGRST116 if one row was expected."),
            "details": .string.orNull("The number of rows if one was expected."),
            "hint": .null,
        ]
        return Schema("EdgeProblem", "Includes the members of PostgREST errors.", fields + code)
    }
}

/// Converts errors into the format of each system's clients, including unknown methods and paths.
///
/// It also counts the calls per system, which shows who still uses them.
struct ErrorMiddleware: RouterMiddleware {
    typealias Context = APIContext

    /// A system's counters.
    private struct Calls: Sendable {
        let answered: Counter
        let refused: Counter
        let failed: Counter

        init(of system: String) {
            func counter(_ outcome: String) -> Counter {
                Counter(label: "carillon.compatibility.calls", dimensions: [("system", system), ("outcome", outcome)])
            }
            self.answered = counter("answered")
            self.refused = counter("refused")
            self.failed = counter("failed")
        }
    }

    /// Keyed by system; made at once, so that `/metrics` has them before the first call.
    private let calls: [String: Calls]

    init() {
        let systems = Set(ErrorStyle.paths.map { $0.style.system })
        self.calls = Dictionary(uniqueKeysWithValues: systems.map { ($0, Calls(of: $0)) })
    }

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        guard let style = ErrorStyle.of(request.uri.path) else { return try await next(request, context) }
        let calls = self.calls[style.system]
        do {
            let response = try await next(request, context)
            calls?.answered.increment()
            return response
        } catch {
            let problem = ProblemMiddleware.problem(error, request, context)
            let status = style.status(of: problem)
            (status.kind == .serverError ? calls?.failed : calls?.refused)?.increment()
            return problem.response(style.body(of: problem), status: status)
        }
    }
}
