// Carillon · SummaryText.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Storage
import Synchronization

/// The text of a summary: the catalog's template for its type, or plain text.
struct SummaryText: Sendable, Equatable {
    /// The most titles in plain text.
    private static let mostTitles = 3

    private(set) var title: String
    private(set) var body: String
    /// Platform overrides with the template's e-mail parts; nil for none.
    private(set) var platform: [UInt8]?
    /// The variable that the template needs and some item lacks; nil for none.
    private(set) var fault: JobFault?

    /// Creates plain text.
    ///
    /// - Parameters:
    ///   - count: the number of notifications.
    ///   - titles: the first few titles.
    init(count: Int, titles: [String]) {
        self.title = "\(count) notifications"
        self.body = titles.filter { !$0.isEmpty }.prefix(Self.mostTitles).joined(separator: "\n")
    }

    /// Renders the type's template with `count` and the first ten `items`.
    ///
    /// Leaves out items that lack a variable. Uses plain text if the catalog has no template, or if
    /// every item lacks a variable.
    init(count: Int, lines: [DigestStore.Line], type: String, catalog: Catalog, locale: String?) {
        self.init(count: count, titles: lines.map(\.title))
        guard let templates = catalog.summary(of: type) else { return }
        func words(of lines: [DigestStore.Line]) throws(JobFault) -> RenderedMessage {
            let variables = TemplateVariables(json: Self.variables(count: count, lines: lines))
            var renderer = MessageRenderer(templates, default: catalog.defaultLocale, variables: variables)
            return try renderer.message(locale: locale)
        }
        do throws(JobFault) {
            self.use(try words(of: lines))
        } catch {
            self.fault = error
            let complete = lines.filter { (try? words(of: [$0])) != nil }
            if !complete.isEmpty, let message = try? words(of: complete) { self.use(message) }
        }
    }

    private mutating func use(_ message: RenderedMessage) {
        self.title = message.title
        self.body = message.body
        self.platform = message.platform(completing: nil)
    }

    private static func variables(count: Int, lines: [DigestStore.Line]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("count", count)
        writer.array("items", lines) { writer, line in
            writer.beginObject()
            writer.member("title", line.title)
            writer.member("body", line.body)
            writer.key("data")
            if let data = line.data { writer.raw(data) } else { writer.raw("{}") }
            writer.endObject()
        }
        writer.endObject()
        return writer.bytes
    }

    /// Returns the data of a summary: the count, and the ids of the first notifications.
    ///
    /// - Parameter hidesButtons: whether to leave out the type's buttons, which are for a single
    ///   notification.
    static func data(count: Int, notifications: [NotificationID], hidesButtons: Bool = false) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("count", count)
        writer.array("notifications", notifications) { $0.string($1.description) }
        if hidesButtons { writer.member("actions", .array([])) }
        writer.endObject()
        return writer.bytes
    }
}

/// The types whose summary template did not fit, so that each is logged once.
final class SummaryFaults: Sendable {
    private let types = Mutex<Set<String>>([])

    /// Counts a fault, and logs the first fault of each type.
    func report(_ fault: JobFault, type: String, logger: Logger) {
        PipelineMetrics.faultySummaries.increment()
        guard self.types.withLock({ $0.insert(type).inserted }) else { return }
        logger.warning(
            "summary template needs a variable that items lack; check the catalog", metadata: ["error": "\(fault)"])
    }
}
