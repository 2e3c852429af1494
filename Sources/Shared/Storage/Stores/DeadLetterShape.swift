// Carillon · DeadLetterShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A dead letter as JSON.
package enum DeadLetterShape {
    /// Writes the JSON object as a value.
    package static func write(_ letter: DeadLetterStore.Letter, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", letter.id)
        writer.member("stream", letter.stream)
        writer.member("entry", letter.entry)
        writer.member("reason", letter.reason)
        writer.member("at", letter.at.rfc3339)
        writer.member("replay_at", letter.replayAt?.rfc3339)
        writer.key("fields")
        writer.raw(letter.json)
        writer.endObject()
    }
}
