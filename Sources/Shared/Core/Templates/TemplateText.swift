// Carillon · TemplateText.swift
// SPDX-License-Identifier: Apache-2.0

import Mustache

/// A compiled text with placeholders.
struct TemplateText: Sendable {
    /// How variables are written.
    enum Form: Sendable {
        /// Unchanged.
        case text
        /// With HTML's special characters escaped.
        case html
    }

    /// On its own line, so that it leaves no trace in the output.
    private static let textPragma = "{{% CONTENT_TYPE:TEXT}}\n"

    /// Nil for a text without tags.
    private let template: MustacheTemplate?
    private let source: String
    /// Names after a dot, which must exist in the value before it.
    private let memberNames: Set<String>

    /// - Throws: ``TemplateSyntaxFault`` with the line in the text.
    init(_ source: String, _ form: Form) throws(TemplateSyntaxFault) {
        self.source = source
        let tags = try TemplateTags(source)
        self.memberNames = tags.memberNames
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
            throw TemplateSyntaxFault(line: 1, reason: "not a valid template")
        }
    }

    /// Fills in the variables.
    ///
    /// - Throws: ``TemplateVariableFault`` for the first variable that is missing or is not text.
    func render(_ variables: TemplateVariables) throws(TemplateVariableFault) -> String {
        guard let template else { return self.source }
        let lookup = TemplateLookup(memberNames: self.memberNames)
        let text = template.render(ScopeValue(variables.members, lookup: lookup, isRoot: true))
        if let fault = lookup.fault { throw fault }
        return text
    }

    private static func reason(_ error: any Error) -> String {
        switch error as? MustacheTemplate.Error {
        case .sectionCloseNameIncorrect: "a section is closed with another name"
        case .expectedSectionEnd: "a section is not closed"
        case .unfinishedName: "a tag is not closed, or its name has characters other than letters, digits and . - _ ?"
        default: "unknown tag"
        }
    }
}

/// A fault in a template's text.
struct TemplateSyntaxFault: Error, Sendable, Equatable {
    /// The line in the text, from 1.
    let line: Int
    let reason: String
}

/// A missing or unsuitable variable.
struct TemplateVariableFault: Error, Sendable, Equatable {
    /// The variable's path, such as `invoice.number`.
    let name: String
    let reason: String

    static let missing = "is missing"
    static let object = "is an object; give text or a number"
    static let list = "is a list; give text or a number"
}

/// The tags of a template, checked before it is compiled.
struct TemplateTags {
    private(set) var isEmpty = true
    /// The second and later parts of dotted names.
    private(set) var memberNames: Set<String> = []

    /// - Throws: ``TemplateSyntaxFault`` for unsupported tags: partials, blocks, other delimiters.
    init(_ source: String) throws(TemplateSyntaxFault) {
        var line = 1
        var rest = Substring(source)
        while let opening = rest.firstRange(of: "{{") {
            line += rest[..<opening.lowerBound].count { $0.isNewline }
            self.isEmpty = false
            let inside = rest[opening.upperBound...]
            guard let closing = inside.firstRange(of: "}}") else {
                throw TemplateSyntaxFault(line: line, reason: "a tag is not closed")
            }
            let tag = inside[..<closing.lowerBound]
            try self.note(tag, line: line)
            line += tag.count { $0.isNewline }
            rest = inside[closing.upperBound...]
        }
    }

    private mutating func note(_ tag: Substring, line: Int) throws(TemplateSyntaxFault) {
        let sigil = tag.first
        switch sigil {
        case "!": return
        case ">", "<", "$": throw TemplateSyntaxFault(line: line, reason: "partials and blocks are not supported")
        case "=": throw TemplateSyntaxFault(line: line, reason: "delimiters must be {{ and }}")
        case "%": throw TemplateSyntaxFault(line: line, reason: "pragmas are not supported")
        default: break
        }
        let name = tag.drop { "#^/&{".contains($0) || $0.isWhitespace }
            .prefix { $0 != "}" && !$0.isWhitespace }
        guard !name.isEmpty else { throw TemplateSyntaxFault(line: line, reason: "a tag has no name") }
        let path = name.split(separator: "(").last ?? name
        for part in path.prefix(while: { $0 != ")" }).split(separator: ".").dropFirst() {
            self.memberNames.insert(String(part))
        }
    }
}
