// Carillon · TemplateText.swift
// SPDX-License-Identifier: Apache-2.0

import Mustache

/// A text with placeholders, compiled.
package struct TemplateText: Sendable {
    /// How what is filled in is written.
    package enum Form: Sendable {
        /// As it is.
        case text
        /// With HTML's characters escaped.
        case html
    }

    /// On a line of its own, which leaves no trace in the output.
    private static let textPragma = "{{% CONTENT_TYPE:TEXT}}\n"

    /// Nil if nothing is filled in.
    private let template: MustacheTemplate?
    /// Where that is enough.
    private let pieces: TemplatePieces?
    private let source: String
    /// The names that stand after a dot, which must be there where they are looked up.
    private let memberNames: Set<String>

    /// - Throws: ``TemplateSyntaxFault`` with the line in the text.
    package init(_ source: String, _ form: Form) throws(TemplateSyntaxFault) {
        self.source = source
        let tags = try TemplateTags(source)
        self.memberNames = tags.memberNames
        self.pieces = form == .text ? TemplatePieces(source, memberNames: tags.memberNames) : nil
        guard !tags.isEmpty else {
            self.template = nil
            return
        }
        do {
            self.template = try MustacheTemplate(string: form == .text ? Self.textPragma + source : source)
        } catch let error as MustacheTemplate.ParserError {
            let line = error.context.lineNumber - (form == .text ? 1 : 0)
            throw TemplateSyntaxFault(line: max(line, 1), reason: Self.reason(error.error))
        } catch {
            throw TemplateSyntaxFault(line: 1, reason: "is no template")
        }
    }

    /// The text with the variables filled in.
    ///
    /// - Throws: ``TemplateVariableFault`` for the first variable that is missing or is no text.
    package func render(_ variables: TemplateVariables) throws(TemplateVariableFault) -> String {
        guard let template else { return self.source }
        if let text = try self.pieces?.render(variables) { return text }
        let lookup = TemplateLookup(memberNames: self.memberNames)
        let text = template.render(ScopeValue(variables.members, lookup: lookup, isRoot: true))
        if let fault = lookup.fault { throw fault }
        return text
    }

    private static func reason(_ error: any Error) -> String {
        switch error as? MustacheTemplate.Error {
        case .sectionCloseNameIncorrect: "a section is closed by another name"
        case .expectedSectionEnd: "a section is not closed"
        case .unfinishedName: "a tag is not closed, or its name holds other than letters, digits and . - _ ?"
        default: "a tag is not understood"
        }
    }
}

/// What is wrong with the text of a template.
package struct TemplateSyntaxFault: Error, Sendable, Equatable {
    /// The line in the text, from 1.
    package let line: Int
    package let reason: String
}

/// A variable that a text needs and does not have.
package struct TemplateVariableFault: Error, Sendable, Equatable {
    /// The variable's path, such as `invoice.number`.
    package let name: String
    package let reason: String

    static let missing = "is missing"
    static let object = "is an object, where text or a number is needed"
    static let list = "is a list, where text or a number is needed"
}
