// Carillon · JobWording.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Renders a job's texts and buttons from the catalog, once per locale.
struct JobWording: Sendable {
    /// The rendered parts for one locale.
    private struct Words: Sendable {
        var message: RenderedMessage?
        var data: [UInt8]?
        /// The platform overrides with the e-mail's texts.
        var platformWithEmail: [UInt8]?
    }

    private let content: JobContent
    private let fallback: LocaleTag
    private let buttons: [ActionSet.Button]
    private let mayEmail: Bool
    private var renderer: MessageRenderer?
    private var words: [String?: Result<Words, JobFault>] = [:]

    /// - Returns: nil if the catalog adds nothing to the job.
    init?(_ content: JobContent, type: NotificationType, catalog: Catalog) {
        let renderer = catalog.renderer(content)
        let buttons = catalog.actions(of: content.type)?.rule(for: content.extras.state)?.buttons ?? []
        if renderer == nil, buttons.isEmpty { return nil }
        self.content = content
        self.fallback = catalog.defaultLocale
        self.mayEmail = type.channels.contains(.email)
        self.renderer = renderer
        self.buttons = buttons
    }

    /// Whether the result depends on the locale.
    var needsLocale: Bool {
        self.renderer?.isLocalized == true || self.buttons.contains { $0.title.isLocalized }
    }

    /// Renders texts that do not depend on the locale, once for all notifications.
    ///
    /// - Throws: `JobFault` if they cannot be rendered.
    mutating func renderUnlocalized() throws(JobFault) {
        if !self.needsLocale { _ = try self.words(for: nil) }
    }

    /// Writes texts and buttons for a locale into a notification.
    ///
    /// - Parameter locale: nil if the texts do not depend on it.
    /// - Throws: `JobFault` if a text cannot be rendered.
    mutating func apply(to notification: inout Notification, locale: String?) throws(JobFault) {
        let words = try self.words(for: locale)
        if let message = words.message {
            notification.title = message.title
            notification.body = message.body
        }
        notification.data = words.data
        if self.mayEmail, notification.channels.contains(.email) {
            notification.extras.platform = words.platformWithEmail
        }
    }

    private mutating func words(for locale: String?) throws(JobFault) -> Words {
        if let known = self.words[locale] { return try known.get() }
        let result: Result<Words, JobFault>
        do throws(JobFault) {
            var words = Words()
            words.message = try self.renderer?.message(locale: locale)
            words.data = self.data(locale)
            let platform = self.content.extras.platform
            words.platformWithEmail = words.message?.platform(completing: platform) ?? platform
            result = .success(words)
        } catch {
            result = .failure(error)
        }
        self.words[locale] = result
        return try result.get()
    }

    /// Returns the job's data with `actions`, unless it has its own.
    private func data(_ locale: String?) -> [UInt8]? {
        guard !self.buttons.isEmpty else { return self.content.data }
        let members = self.content.data.flatMap { try? JSONParser.parse($0) }?.object ?? []
        guard !members.contains(where: { $0.key == "actions" }) else { return self.content.data }
        let actions = self.buttons.map { button in
            var action = [
                JSONMember("id", .string(button.id)),
                JSONMember("title", .string(button.title(for: locale, default: self.fallback))),
            ]
            let flags = [
                ("foreground", button.isForeground), ("destructive", button.isDestructive),
                ("authentication", button.needsAuthentication),
            ]
            if let url = button.url { action.append(JSONMember("url", .string(url))) }
            for (name, isSet) in flags where isSet { action.append(JSONMember(name, .bool(true))) }
            return JSONValue.object(action)
        }
        return JSONWriter.bytes(of: .object(members + [JSONMember("actions", .array(actions))]))
    }
}
