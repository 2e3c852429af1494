// Carillon · SummaryText.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
import Model

/// What a summary says where the catalog has no words for it.
struct SummaryText: Sendable, Equatable {
    /// How many titles are shown.
    private static let mostTitles = 3

    let title: String
    let body: String

    /// - Parameters:
    ///   - count: how many notifications it stands for.
    ///   - titles: those of the first few.
    init(count: Int, titles: [String]) {
        self.title = "\(count) notifications"
        self.body = titles.filter { !$0.isEmpty }.prefix(Self.mostTitles).joined(separator: "\n")
    }

    /// The data of a summary: how many there are, and the ids of the first.
    static func data(count: Int, notifications: [NotificationID]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("count")
        writer.integer(count)
        writer.key("notifications")
        writer.beginArray()
        for id in notifications { writer.string(id.description) }
        writer.endArray()
        writer.endObject()
        return writer.bytes
    }
}
