// Carillon · DeadLetterShape.swift
// SPDX-License-Identifier: Apache-2.0

package import JSON
import Model

/// A dead letter as JSON.
package enum DeadLetterShape {
    /// Writes the JSON object as a value.
    package static func write(_ letter: DeadLetterStore.Letter, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("id")
        writer.integer(letter.id)
        writer.key("stream")
        writer.string(letter.stream)
        writer.key("entry")
        writer.string(letter.entry)
        writer.key("reason")
        writer.string(letter.reason)
        writer.key("at")
        writer.string(letter.at.rfc3339)
        writer.key("replay_at")
        writer.string(letter.replayAt?.rfc3339)
        writer.key("fields")
        writer.raw(letter.json)
        writer.endObject()
    }
}
