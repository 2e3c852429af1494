// Carillon · MessageTemplate.swift
// SPDX-License-Identifier: Apache-2.0

/// The compiled texts of a notification in one locale.
package struct MessageTemplate: Sendable {
    var title: TemplateText
    var body: TemplateText?
    var emailSubject: TemplateText?
    var emailText: TemplateText?
    var emailHTML: TemplateText?

    /// Fills in the variables and cuts texts that are too long.
    ///
    /// - Throws: ``TemplateVariableFault``.
    func render(_ variables: TemplateVariables) throws(TemplateVariableFault) -> RenderedMessage {
        func text(_ template: TemplateText?, limit: Int) throws(TemplateVariableFault) -> String? {
            guard let template else { return nil }
            return try template.render(variables).cut(to: limit)
        }
        var message = RenderedMessage()
        message.title = try text(self.title, limit: JobLimits.title) ?? ""
        message.body = try text(self.body, limit: JobLimits.body) ?? ""
        message.emailSubject = try text(self.emailSubject, limit: JobLimits.title)
        message.emailText = try text(self.emailText, limit: RenderedMessage.longestEmail)
        // Cutting would break the markup, so HTML that is too long is a fault.
        message.emailHTML = try self.emailHTML?.render(variables)
        if let html = message.emailHTML, html.utf8.count > RenderedMessage.longestEmail {
            let reason = "make an e-mail of more than \(RenderedMessage.longestEmail) bytes"
            throw TemplateVariableFault(name: "", reason: reason)
        }
        return message
    }
}

/// The rendered texts of a notification.
package struct RenderedMessage: Sendable, Equatable {
    /// The limit of each part of an e-mail.
    static let longestEmail = 65_536

    package var title = ""
    package var body = ""
    package var emailSubject: String?
    package var emailText: String?
    package var emailHTML: String?

    package init() {}

    /// Returns the job's overrides; the template fills in the e-mail parts that they leave open.
    package func platform(completing overrides: [UInt8]?) -> [UInt8]? {
        let parts = [("subject", self.emailSubject), ("text", self.emailText), ("html", self.emailHTML)]
        guard parts.contains(where: { $0.1 != nil }) else { return overrides }
        let platform = overrides.flatMap { try? JSONParser.parse($0) }
        var email = platform?["email"]?.object ?? []
        for case (let name, .some(let text)) in parts where !email.contains(where: { $0.key == name }) {
            email.append(JSONMember(name, .string(text)))
        }
        let others = (platform?.object ?? []).filter { $0.key != "email" }
        return JSONWriter.bytes(of: .object(others + [JSONMember("email", .object(email))]))
    }
}

extension String {
    /// Cuts the text to `limit` Unicode scalars; a cut text ends with `…` after a whole character.
    func cut(to limit: Int) -> String {
        guard self.utf8.count > limit, self.unicodeScalars.count > limit else { return self }
        var kept = ""
        var count = 0
        for character in self {
            let scalars = character.unicodeScalars.count
            guard count + scalars < limit else { break }
            count += scalars
            kept.append(character)
        }
        return kept + "…"
    }

    /// Returns the start of the text with an ellipsis, cut between characters.
    ///
    /// - Parameters:
    ///   - excess: the amount to remove, in units of `cost`; 0 or less leaves the text unchanged.
    ///   - cost: the size of one UTF-8 byte at the destination.
    package func shortened(by excess: Int, cost: (UInt8) -> Int = { _ in 1 }) -> String {
        guard excess > 0 else { return self }
        let mark = "…"
        func total(_ bytes: some Sequence<UInt8>) -> Int { bytes.reduce(0) { $0 + cost($1) } }
        var room = total(self.utf8) - excess - total(mark.utf8)
        let kept = self.prefix { character in
            room -= total(character.utf8)
            return room >= 0
        }
        return kept + mark
    }
}

/// Renders the texts of one job, once for each locale of its recipients.
package struct MessageRenderer: Sendable {
    private let templates: TemplateSet
    private let fallback: LocaleTag
    private let variables: TemplateVariables
    private var rendered: [String: Result<RenderedMessage, JobFault>] = [:]

    /// - Parameter variables: the job's `vars`.
    package init(_ templates: TemplateSet, default fallback: LocaleTag, variables: TemplateVariables) {
        self.templates = templates
        self.fallback = fallback
        self.variables = variables
    }

    /// Whether there is more than one locale.
    package var isLocalized: Bool { self.templates.locales.count > 1 }

    /// Returns the texts for a user's locale.
    ///
    /// - Throws: `JobFault`, which names variable, template and locale.
    package mutating func message(locale: String?) throws(JobFault) -> RenderedMessage {
        let key = self.templates.locale(for: locale, default: self.fallback)
        if let known = self.rendered[key] { return try known.get() }
        let result = self.render(key)
        self.rendered[key] = result
        return try result.get()
    }

    /// Returns the texts of every locale, those of the default locale first.
    ///
    /// - Throws: `JobFault`, which names variable, template and locale.
    package func all() throws(JobFault) -> [(locale: String, message: RenderedMessage)] {
        let first = self.templates.locale(for: nil, default: self.fallback)
        let locales = [first] + self.templates.locales.keys.filter { $0 != first }.sorted()
        var texts: [(locale: String, message: RenderedMessage)] = []
        for locale in locales { texts.append((locale, try self.render(locale).get())) }
        return texts
    }

    /// Returns the faults of the variables in every locale.
    func faults() -> [JobFault] {
        self.templates.locales.keys.sorted().compactMap { locale in
            guard case .failure(let fault) = self.render(locale) else { return nil }
            return fault
        }
    }

    private func render(_ locale: String) -> Result<RenderedMessage, JobFault> {
        guard let template = self.templates.locales[locale] else {
            return .failure(JobFault("template", "has no text, \(self.location(locale))"))
        }
        do throws(TemplateVariableFault) {
            return .success(try template.render(self.variables))
        } catch {
            let field = error.name.isEmpty ? "vars" : "vars.\(error.name)"
            return .failure(JobFault(field, "\(error.reason), \(self.location(locale))"))
        }
    }

    private func location(_ locale: String) -> String { "in \(self.templates.owner), locale \(locale)" }
}

/// A job's variables.
package struct TemplateVariables: Sendable, Equatable {
    let members: [JSONMember]

    init(_ members: [JSONMember] = []) {
        self.members = members
    }

    /// Parses a job's `vars`; empty if it has none.
    package init(json: [UInt8]?) {
        self.members = json.flatMap { try? JSONParser.parse($0) }?.object ?? []
    }
}
