// Carillon · JobWording.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What one job's notifications say where the catalog says it: texts from templates, buttons by the entity's state.
///
/// Made once for each locale, not once for each recipient.
struct JobWording: Sendable {
    /// The words for one locale.
    private struct Words: Sendable {
        var message: RenderedMessage?
        var data: [UInt8]?
        /// The overrides with the e-mail's parts among them.
        var platformWithEmail: [UInt8]?
    }

    private let content: JobContent
    private let fallback: LocaleTag
    private let buttons: [ActionSet.Button]
    private let mayEmail: Bool
    private var renderer: MessageRenderer?
    private var words: [String?: Result<Words, JobFault>] = [:]

    /// - Returns: nil if the job says everything itself.
    init?(_ content: JobContent, catalog: Catalog) {
        self.content = content
        self.fallback = catalog.defaultLocale
        self.mayEmail = catalog[content.type]?.channels.contains(.email) == true
        self.renderer = catalog.renderer(content)
        self.buttons = catalog.actions(of: content.type)?.rule(for: content.extras.state)?.buttons ?? []
        if self.renderer == nil, self.buttons.isEmpty { return nil }
    }

    /// Whether the words differ by locale.
    var needsLocale: Bool {
        self.renderer?.isLocalised == true || self.buttons.contains { $0.titles.count > 1 }
    }

    /// Writes the words into a notification for someone with that locale.
    ///
    /// - Throws: `JobFault` if a text cannot be made for the locale.
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
            words.platformWithEmail = self.platform(words.message)
            result = .success(words)
        } catch {
            result = .failure(error)
        }
        self.words[locale] = result
        return try result.get()
    }

    /// The job's data with `actions`, unless it has its own.
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
            for (name, isSet) in flags where isSet { action.append(JSONMember(name, .bool(true))) }
            return JSONValue.object(action)
        }
        return JSONWriter.bytes(of: .object(members + [JSONMember("actions", .array(actions))]))
    }

    /// The job's overrides; the e-mail's parts that it leaves open are the template's.
    private func platform(_ message: RenderedMessage?) -> [UInt8]? {
        let parts = [
            ("subject", message?.emailSubject), ("text", message?.emailText), ("html", message?.emailHTML),
        ]
        guard parts.contains(where: { $0.1 != nil }) else { return self.content.extras.platform }
        let platform = self.content.extras.platform.flatMap { try? JSONParser.parse($0) }
        var email = platform?["email"]?.object ?? []
        for case (let name, .some(let text)) in parts where !email.contains(where: { $0.key == name }) {
            email.append(JSONMember(name, .string(text)))
        }
        let others = (platform?.object ?? []).filter { $0.key != "email" }
        return JSONWriter.bytes(of: .object(others + [JSONMember("email", .object(email))]))
    }
}
