// Carillon · InboxChangeShape.swift
// SPDX-License-Identifier: Apache-2.0

/// What sockets are told about notifications that were read or deleted: which, and when.
package enum InboxChangeShape {
    /// Which notifications a change is about.
    package enum Subject: Sendable {
        case ids([NotificationID])
        /// All of a kind, named by the member that says so, whose version is at most this.
        case all(StaticString, upTo: Int64)
    }

    /// Writes the body of a frame.
    ///
    /// - Parameter isBulk: Whether a client named the ids as a list. A list of one is marked, as
    ///   some dialects have another event for it.
    package static func encode(_ subject: Subject, isBulk: Bool = false, at: Timestamp) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        switch subject {
        case .all(let name, let version):
            writer.key(name)
            writer.bool(true)
            writer.member("up_to_version", version)
        case .ids(let ids):
            writer.key("ids")
            writer.beginArray()
            for id in ids { writer.string(id.description) }
            writer.endArray()
            if isBulk, ids.count == 1 { writer.member("bulk", true) }
        }
        writer.member("at", at.rfc3339)
        writer.endObject()
        return writer.bytes
    }
}
