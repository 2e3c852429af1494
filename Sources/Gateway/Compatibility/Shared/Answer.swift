// Carillon · Answer.swift
// SPDX-License-Identifier: Apache-2.0

import API
import HTTPTypes
import Hummingbird
import JSON
import NIOCore

/// Makes answers.
enum Answer {
    static let noContent = Response(status: .noContent)
    /// Unknown ids and other people's ids look the same.
    static let notFound = Problem(.notFound, "there is no such thing")

    /// What was written.
    static func json(_ writer: JSONWriter, status: HTTPResponse.Status = .ok) -> Response {
        Response(
            status: status,
            headers: [.contentType: "application/json"],
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: writer.bytes))
        )
    }

    /// An object whose members are what `write` writes.
    static func object(
        status: HTTPResponse.Status = .ok,
        _ write: (inout JSONWriter) throws -> Void
    ) rethrows -> Response {
        var writer = JSONWriter(capacity: 512)
        writer.beginObject()
        try write(&writer)
        writer.endObject()
        return self.json(writer, status: status)
    }
}
