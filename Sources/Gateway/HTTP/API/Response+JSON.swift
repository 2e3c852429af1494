// Carillon · Response+JSON.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore

extension Response {
    /// A JSON answer.
    package static func json(_ writer: JSONWriter, status: HTTPResponse.Status = .ok) -> Response {
        .json(writer.bytes, status: status)
    }

    /// JSON that was written before.
    static func json(_ bytes: [UInt8], status: HTTPResponse.Status = .ok) -> Response {
        Response(
            status: status,
            headers: [.contentType: "application/json"],
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes))
        )
    }

    /// A JSON object whose members are what `write` writes.
    ///
    /// - Parameter capacity: bytes that it probably takes.
    package static func object(
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
