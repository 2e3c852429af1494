// Carillon · MessageTemplate.swift
// SPDX-License-Identifier: Apache-2.0

/// The texts of a notification in one locale, compiled.
package struct MessageTemplate: Sendable {
    package var title: TemplateText
    package var body: TemplateText?
    package var emailSubject: TemplateText?
    package var emailText: TemplateText?
    package var emailHTML: TemplateText?

    package init(title: TemplateText) {
        self.title = title
    }

    /// Fills in the variables; what is too long then is cut.
    ///
    /// - Throws: ``TemplateVariableFault``.
    package func render(_ variables: TemplateVariables) throws(TemplateVariableFault) -> RenderedMessage {
        func text(_ template: TemplateText?, limit: Int) throws(TemplateVariableFault) -> String? {
            guard let template else { return nil }
            return try template.render(variables).cut(to: limit)
        }
        var message = RenderedMessage()
        message.title = try text(self.title, limit: JobLimits.title) ?? ""
        message.body = try text(self.body, limit: JobLimits.body) ?? ""
        message.emailSubject = try text(self.emailSubject, limit: JobLimits.title)
        message.emailText = try text(self.emailText, limit: RenderedMessage.longestEmail)
        // A cut through markup would be worse than a fault.
        message.emailHTML = try self.emailHTML?.render(variables)
        if let html = message.emailHTML, html.utf8.count > RenderedMessage.longestEmail {
            let reason = "make an e-mail of more than \(RenderedMessage.longestEmail) bytes"
            throw TemplateVariableFault(name: "", reason: reason)
        }
        return message
    }
}

/// The texts of a notification.
package struct RenderedMessage: Sendable, Equatable {
    /// The most that a part of an e-mail may have.
    package static let longestEmail = 65_536

    package var title = ""
    package var body = ""
    package var emailSubject: String?
    package var emailText: String?
    package var emailHTML: String?

    package init() {}
}

extension String {
    /// The text within `limit` Unicode scalars; what is longer ends with `…` after the last whole character that fits.
    package func cut(to limit: Int) -> String {
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
}
