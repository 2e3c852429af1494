// Carillon · SummaryText.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// What a summary says: the catalog's words for its type, or plain ones where it has none.
struct SummaryText: Sendable, Equatable {
    /// How many titles plain words show.
    private static let mostTitles = 3

    private(set) var title: String
    private(set) var body: String
    /// What the catalog's words asked for that is not there; nil if nothing, or where there are no such words.
    private(set) var fault: JobFault?

    /// Plain words.
    ///
    /// - Parameters:
    ///   - count: how many notifications it stands for.
    ///   - titles: those of the first few.
    init(count: Int, titles: [String]) {
        self.title = "\(count) notifications"
        self.body = titles.filter { !$0.isEmpty }.prefix(Self.mostTitles).joined(separator: "\n")
    }

    /// The words of a type's summary, which get `count` and the first ten as `items`, but for those that lack what the words
    /// ask for; plain ones if the catalog has none, or if all lack something.
    init(count: Int, lines: [DigestStore.Line], type: String, catalog: Catalog, locale: String?) {
        self.init(count: count, titles: lines.map(\.title))
        guard let templates = catalog.summary(of: type) else { return }
        func words(of lines: [DigestStore.Line]) throws(JobFault) -> RenderedMessage {
            let variables = TemplateVariables(json: Self.variables(count: count, lines: lines))
            var renderer = MessageRenderer(templates, default: catalog.defaultLocale, variables: variables)
            return try renderer.message(locale: locale)
        }
        do throws(JobFault) {
            self.say(try words(of: lines))
        } catch {
            self.fault = error
            let complete = lines.filter { (try? words(of: [$0])) != nil }
            if !complete.isEmpty, let message = try? words(of: complete) { self.say(message) }
        }
    }

    private mutating func say(_ message: RenderedMessage) {
        self.title = message.title
        self.body = message.body
    }

    private static func variables(count: Int, lines: [DigestStore.Line]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("count", count)
        writer.key("items")
        writer.beginArray()
        for line in lines {
            writer.beginObject()
            writer.member("title", line.title)
            writer.member("body", line.body)
            writer.key("data")
            if let data = line.data { writer.raw(data) } else { writer.raw("{}") }
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return writer.bytes
    }

    /// The data of a summary: how many there are, and the ids of the first.
    static func data(count: Int, notifications: [NotificationID]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("count", count)
        writer.key("notifications")
        writer.beginArray()
        for id in notifications { writer.string(id.description) }
        writer.endArray()
        writer.endObject()
        return writer.bytes
    }
}
