// Carillon · RemovalShape.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model

/// What sockets are told of notifications that were read or left an inbox, as JSON.
package enum RemovalShape {
    /// The JSON object.
    ///
    /// - Parameter all: said in place of the ids, where the change was of all that were there.
    package static func encode(_ ids: [NotificationID], all: StaticString? = nil, at: Timestamp) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        if let all {
            writer.key(all)
            writer.bool(true)
        } else {
            writer.key("ids")
            writer.beginArray()
            for id in ids { writer.string(id.description) }
            writer.endArray()
        }
        writer.key("at")
        writer.string(at.rfc3339)
        writer.endObject()
        return writer.bytes
    }
}
