// Carillon · ErrorStyle.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes

/// How a system's clients want to hear that something is wrong.
///
/// Every body is a problem document (RFC 9457) whose `detail` names each faulty field, with the same words as `error` and
/// `message`, under which one client or another looks for them.
struct ErrorStyle: Sendable {
    /// The system, as metrics name it.
    let system: String
    /// The status for fields at fault.
    let invalid: HTTPResponse.Status
    /// Whether `errors` is an object with an array of reasons for each field, as ASP.NET writes it.
    var groupsFaults = false
    /// Whether `code`, `details` and `hint` stand beside `message`, as PostgREST writes it.
    var hasCode = false

    static let hybrid = ErrorStyle(system: "socketio-hybrid", invalid: .unprocessableContent)
    static let allowance = ErrorStyle(system: "allowance", invalid: .badRequest, groupsFaults: true)
    static let news = ErrorStyle(system: "breaking-news", invalid: .unprocessableContent)
    static let tasks = ErrorStyle(system: "task-reminders", invalid: .badRequest)
    static let edge = ErrorStyle(system: "edge-scheduler", invalid: .badRequest, hasCode: true)

    /// Whose clients call which paths.
    static let paths: [(path: String, style: ErrorStyle)] = [
        ("api/notifications", .hybrid), ("api/push", .hybrid), ("api/push/apns", .tasks), ("api/push/gcm", .tasks),
        ("api/push/test", .tasks), ("api/v1/notifications", .allowance), ("api/v1/devices", .allowance),
        ("device-token", .news), ("rest/v1", .edge),
    ]

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

    /// PostgREST's code for a status, or PostgreSQL's where PostgREST passes that on.
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
        for fault in problem.faults where !fields.contains(fault.field) { fields.append(fault.field) }
        writer.beginObject()
        for field in fields {
            writer.key(escaping: field)
            writer.beginArray()
            for fault in problem.faults where fault.field == field { writer.string(fault.reason) }
            writer.endArray()
        }
        writer.endObject()
    }
}
