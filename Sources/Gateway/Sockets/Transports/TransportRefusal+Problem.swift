// Carillon · TransportRefusal+Problem.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOHTTP1

extension TransportRefusal {
    /// A problem document (RFC 9457).
    package static func problem(_ status: HTTPResponseStatus, _ reason: String) -> TransportRefusal {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("type", "about:blank")
        writer.member("title", status.reasonPhrase)
        writer.member("status", status.code)
        writer.member("detail", reason)
        writer.endObject()
        var headers: HTTPHeaders = ["content-type": "application/problem+json"]
        if status == .unauthorized { headers.add(name: "www-authenticate", value: "Bearer") }
        if status == .upgradeRequired { headers.add(name: "sec-websocket-version", value: "13") }
        return TransportRefusal(status, headers: headers, body: writer.bytes)
    }
}
