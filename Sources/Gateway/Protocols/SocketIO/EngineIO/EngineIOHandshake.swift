// Carillon · EngineIOHandshake.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What the server's first packet tells: exactly five members.
package enum EngineIOHandshake {
    /// The JSON of the open packet.
    ///
    /// - Parameter sid: The session's id, a bearer secret: 20 characters of base64url by custom, never shown to others
    ///   and never used for anything else.
    package static func json(sid: String, transport: EngineIOTransport, configuration: EngineIOConfiguration) -> [UInt8]
    {
        var writer = JSONWriter(capacity: 128)
        writer.beginObject()
        writer.member("sid", sid)
        writer.key("upgrades")
        writer.beginArray()
        if transport == .polling, configuration.allowsUpgrade { writer.string("websocket") }
        writer.endArray()
        writer.member("pingInterval", configuration.pingInterval)
        writer.member("pingTimeout", configuration.pingTimeout)
        writer.member("maxPayload", configuration.maximumPayload)
        writer.endObject()
        return writer.bytes
    }
}
