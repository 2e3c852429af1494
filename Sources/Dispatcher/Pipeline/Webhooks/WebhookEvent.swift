// Carillon · WebhookEvent.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// An event of the stream as webhooks tell it.
struct WebhookEvent {
    /// The entry's, by which receivers know an event that they got before.
    let id: String
    let kind: String
    let org: String
    let at: Timestamp
    private let entry: StreamEntry

    /// Nil for an entry that was deleted meanwhile.
    init?(_ entry: StreamEntry) {
        guard entry.fields != nil else { return nil }
        self.entry = entry
        self.id = entry.id
        self.kind = Self.text(entry, "event")
        self.org = Self.text(entry, "org")
        self.at = Timestamp(milliseconds: Int64(entry.id.prefix { $0 != "-" }) ?? 0)
    }

    private static func text(_ entry: StreamEntry, _ name: String) -> String {
        String(decoding: entry[name] ?? [], as: UTF8.self)
    }

    /// `{"id":…, "event":…, …}` with null for what does not apply.
    var json: [UInt8] {
        var writer = JSONWriter(capacity: 512)
        writer.beginObject()
        writer.member("id", self.id)
        for field in self.entry.fields ?? [] {
            writer.key(escaping: field.name)
            if field.value.isEmpty {
                writer.null()
            } else {
                writer.string(String(decoding: field.value, as: UTF8.self))
            }
        }
        writer.endObject()
        return writer.bytes
    }

    /// The body of a request.
    static func body(_ events: some Sequence<ArraySlice<UInt8>>) -> [UInt8] {
        var writer = JSONWriter(capacity: 4_096)
        writer.beginObject()
        writer.key("events")
        writer.beginArray()
        for event in events { writer.raw(event) }
        writer.endArray()
        writer.endObject()
        return writer.bytes
    }
}
