// Carillon · Problem.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore

/// An answer that says what is wrong, as `application/problem+json` (RFC 9457).
package struct Problem: HTTPResponseError {
    package let status: HTTPResponse.Status
    package let detail: String
    package let faults: [JobFault]
    /// Seconds after which it may work.
    package let retryAfter: Int?
    /// The methods that the path has, with 405.
    package var allowed: [String] = []
    /// The code by which clients of other systems tell errors apart; this API's clients use the
    /// status.
    package var code: String?
    /// The details that such a client reads next to the message.
    package var details: String?

    package init(
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

    /// Why a credential is not accepted.
    init(_ fault: TokenFault) {
        let status: HTTPResponse.Status =
            switch fault.code {
            case .refused: .unauthorized
            case .forbidden: .forbidden
            case .unavailable: .serviceUnavailable
            }
        self.init(status, fault.description, retryAfter: fault.code == .unavailable ? 5 : nil)
    }

    /// Unknown ids and other people's ids look the same.
    static let notFound = Problem(.notFound, "there is no such thing")

    package func response(from request: Request, context: some RequestContext) throws -> Response {
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

    /// The answer with a body in another form, and the same headers.
    package func response(_ body: [UInt8], status: HTTPResponse.Status) -> Response {
        var headers: HTTPFields = [.contentType: "application/problem+json"]
        if status == .unauthorized { headers[.wwwAuthenticate] = "Bearer" }
        if let retryAfter { headers[.retryAfter] = String(retryAfter) }
        if !self.allowed.isEmpty { headers[.allow] = self.allowed.joined(separator: ", ") }
        return Response(status: status, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(bytes: body)))
    }

    /// Writes the faults as an array of objects that name the field and the reason.
    package func writeFaults(to writer: inout JSONWriter) {
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
