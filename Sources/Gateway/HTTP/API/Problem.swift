// Carillon · Problem.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore

/// An error response as `application/problem+json` (RFC 9457).
struct Problem: HTTPResponseError {
    let status: HTTPResponse.Status
    let detail: String
    let faults: [JobFault]
    /// Seconds after which a retry may succeed.
    let retryAfter: Int?
    /// The allowed methods, for 405.
    var allowed: String?
    /// An error code for clients of other systems; clients of this API use the status.
    var code: String?
    /// The details that clients of other systems read in addition to the message.
    var details: String?

    init(
        _ status: HTTPResponse.Status,
        _ detail: String,
        faults: [JobFault] = [],
        retryAfter: Int? = nil,
        code: String? = nil,
        details: String? = nil
    ) {
        self.status = status
        self.detail = detail
        self.faults = faults
        self.retryAfter = retryAfter
        self.code = code
        self.details = details
    }

    /// Explains why a credential was rejected.
    init(_ fault: TokenFault) {
        let status: HTTPResponse.Status =
            switch fault.code {
            case .refused: .unauthorized
            case .forbidden: .forbidden
            case .unavailable: .serviceUnavailable
            }
        self.init(status, fault.description, retryAfter: fault.code == .unavailable ? 5 : nil)
    }

    /// Names the invalid fields of a request: the first ten in `detail`, all in `errors`.
    init(_ status: HTTPResponse.Status = .unprocessableContent, faults: [JobFault]) {
        let named = faults.prefix(Self.mostNamed).map(\.description)
        let rest = faults.count > named.count ? ["and \(faults.count - named.count) more"] : []
        self.init(status, (named + rest).joined(separator: "; "), faults: faults)
    }

    private static let mostNamed = 10

    /// Unknown ids and those of other users look the same.
    static func noSuch(_ thing: String) -> Problem { Problem(.notFound, "there is no such \(thing)") }

    static let noSuchPath = Problem(.notFound, "there is no such path; see /openapi.json")

    func response(from request: Request, context: some RequestContext) throws -> Response {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("type", "about:blank")
        writer.member("title", self.status.reasonPhrase)
        writer.member("status", self.status.code)
        writer.member("detail", self.detail)
        if !self.faults.isEmpty {
            writer.key("errors")
            self.writeFaults(to: &writer)
        }
        writer.endObject()
        return self.response(writer.bytes, status: self.status)
    }

    /// Returns a response with another body and the same headers.
    func response(_ body: [UInt8], status: HTTPResponse.Status) -> Response {
        var headers: HTTPFields = [.contentType: "application/problem+json"]
        if status == .unauthorized { headers[.wwwAuthenticate] = "Bearer" }
        if let retryAfter { headers[.retryAfter] = String(retryAfter) }
        if let allowed { headers[.allow] = allowed }
        return Response(status: status, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(bytes: body)))
    }

    /// Writes the faults as an array of objects with `field` and `reason`.
    func writeFaults(to writer: inout JSONWriter) {
        writer.beginArray()
        for fault in self.faults {
            writer.beginObject()
            writer.member("field", fault.field)
            writer.member("reason", fault.reason)
            writer.endObject()
        }
        writer.endArray()
    }
}

// MARK: Description

extension Schema {
    static let faults = list(of: .object(["field": .string, "reason": .string]), max: 100_000)

    /// A problem document without a name in the components.
    static let plainProblem = object([
        "type": .string, "title": .string, "status": .integer, "detail": .string, "errors?": .faults,
    ])
    static let problem = Schema("Problem", plainProblem)
}

extension ProblemStyle {
    static let canonical = ProblemStyle(
        schema: .problem, refusesUnknownParameters: true, always: [429],
        texts: [
            400: "The path, the query or the form of the body is invalid.",
            401: "The token is missing or invalid.",
            403: "The token does not allow this.",
            404: "It does not exist, or belongs to someone else.",
            409: "The request conflicts with the current state.",
            413: "The body is too long.",
            422: "Fields of the body are invalid; each is named.",
            426: "This path serves only WebSockets.",
            429: "The user exceeds the rate limit.",
            500: "An internal error; see the log.",
            503: "Redis or PostgreSQL is unreachable, or a queue is full.",
        ])
}

extension Response {
    /// Returns a JSON response.
    static func json(_ writer: JSONWriter, status: HTTPResponse.Status = .ok) -> Response {
        .json(writer.bytes, status: status)
    }

    /// Returns a JSON value that `write` writes.
    static func json(
        status: HTTPResponse.Status = .ok,
        _ write: (inout JSONWriter) throws -> Void
    ) rethrows -> Response {
        var writer = JSONWriter()
        try write(&writer)
        return .json(writer, status: status)
    }

    /// Returns a value as the object that `shape` declares.
    ///
    /// - Parameter capacity: the expected bytes.
    static func json<Value>(
        _ value: Value,
        as shape: Shape<Value>,
        status: HTTPResponse.Status = .ok,
        capacity: Int = 512
    ) -> Response {
        var writer = JSONWriter(capacity: capacity)
        shape.write(value, to: &writer)
        return .json(writer, status: status)
    }

    /// Returns a response with rendered JSON.
    static func json(_ bytes: [UInt8], status: HTTPResponse.Status = .ok) -> Response {
        Response(
            status: status,
            headers: [.contentType: "application/json"],
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes))
        )
    }

    /// Returns a JSON object with the members that `write` adds.
    ///
    /// - Parameter capacity: the expected bytes.
    static func object(
        status: HTTPResponse.Status = .ok,
        capacity: Int = 512,
        _ write: (inout JSONWriter) throws -> Void
    ) rethrows -> Response {
        var writer = JSONWriter(capacity: capacity)
        writer.beginObject()
        try write(&writer)
        writer.endObject()
        return .json(writer, status: status)
    }
}
