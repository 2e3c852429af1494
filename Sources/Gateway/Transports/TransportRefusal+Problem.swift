// Carillon · TransportRefusal+Problem.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import NIOHTTP1

extension TransportRefusal {
    /// A problem document (RFC 9457).
    package static func problem(_ status: HTTPResponseStatus, _ reason: String) -> TransportRefusal {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("type")
        writer.string("about:blank")
        writer.key("title")
        writer.string(status.reasonPhrase)
        writer.key("status")
        writer.integer(status.code)
        writer.key("detail")
        writer.string(reason)
        writer.endObject()
        var headers: HTTPHeaders = ["content-type": "application/problem+json"]
        if status == .unauthorized { headers.add(name: "www-authenticate", value: "Bearer") }
        if status == .upgradeRequired { headers.add(name: "sec-websocket-version", value: "13") }
        return TransportRefusal(status, headers: headers, body: writer.bytes)
    }
}
