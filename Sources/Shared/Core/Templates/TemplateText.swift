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

        /// Chooses the form; on its own line, so that it leaves no trace in the output.
        fileprivate var pragma: String {
            switch self {
            case .text: "{{% CONTENT_TYPE:TEXT}}\n"
            case .html: EscapedHTML.pragma
            }
        }
    }

    /// Nil for a text without tags.
    private let template: MustacheTemplate?
    private let source: String

    /// - Throws: ``TemplateSyntaxFault`` with the line in the text.
    init(_ source: String, _ form: Form) throws(TemplateSyntaxFault) {
        self.source = source
        let tags = try TemplateTags(source)
        guard !tags.isEmpty else {
            self.template = nil
            return
        }
        do {
            self.template = try MustacheTemplate(string: form.pragma + tags.marked)
        } catch let error as MustacheTemplate.ParserError {
            // The first line is the pragma.
            throw TemplateSyntaxFault(line: max(error.context.lineNumber - 1, 1), reason: Self.reason(error.error))
        } catch {
            throw TemplateSyntaxFault(line: 1, reason: "not a valid template")
        }
    }

    /// Fills in the variables.
    ///
    /// - Throws: ``TemplateVariableFault`` for the first variable that is missing or is not text;
    ///   without a name if all of them together are at fault.
    func render(_ variables: TemplateVariables) throws(TemplateVariableFault) -> String {
        guard let template else { return self.source }
        let lookup = TemplateLookup()
        let text = template.render(ScopeValue(variables.members, lookup: lookup, isRoot: true))
        if let fault = lookup.fault { throw fault }
        // Adjacent variables may exceed the limit together.
        guard !CombiningMarks.areTooMany(in: text) else {
            throw TemplateVariableFault(name: "", reason: "make a text that \(CombiningMarks.fault)")
        }
        return text
    }

    private static func reason(_ error: any Error) -> String {
        switch error as? MustacheTemplate.Error {
        case .sectionCloseNameIncorrect: "a section is closed with another name"
        case .expectedSectionEnd: "a section is not closed"
        case .unfinishedName: TemplateTags.badName
        default: "unknown tag"
        }
    }
}

/// Escapes the variables of an HTML text.
private struct EscapedHTML: MustacheContentType {
    /// Registered once, under a name of its own.
    static let pragma: String = {
        let name = "ESCAPED_HTML"
        MustacheContentTypes.register(EscapedHTML(), named: name)
        return "{{% CONTENT_TYPE:\(name)}}\n"
    }()

    func escapeText(_ text: String) -> String { text.htmlEscaped }
}

extension StringProtocol {
    /// The text for HTML content and quoted attributes.
    ///
    /// Compares Unicode scalars, because `<` is markup even if a combining mark follows it.
    package var htmlEscaped: String {
        var escaped = ""
        for scalar in self.unicodeScalars {
            switch scalar {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            case "\"": escaped += "&quot;"
            case "'": escaped += "&#39;"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
        return escaped
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

    /// The reason for a value that a function does not take.
    static func unsuitable(for function: String) -> String { "cannot be given to \(function)" }
}

/// The tags of a template, checked before it is compiled.
struct TemplateTags {
    static let badName = "a tag is not closed, or its name has characters other than letters, digits and . - _ ?"
    /// Marks each part of a name that follows a dot.
    ///
    /// The renderer accepts it in names; catalogs may not use it.
    private static let memberMark: Character = "*"
    private static let functions = [
        "capitalized", "count", "empty", "equalzero", "even", "first", "index", "last", "lowercased", "minusone", "odd",
        "plusone", "reversed", "uppercased",
    ]
    /// Functions that need no variable, such as `index()`: they take an element's index in its
    /// list.
    private static let indexFunctions: Set = ["even", "first", "index", "last", "odd"]
    /// Functions that return a boolean, which no other function takes.
    private static let booleanFunctions: Set = ["empty", "equalzero", "even", "odd"]

    private(set) var isEmpty = true
    /// The source with ``memberMark``s, by which values tell `a.b` from `b`.
    private(set) var marked = ""

    /// - Throws: ``TemplateSyntaxFault`` for unsupported tags: partials, blocks, other delimiters,
    ///   unknown functions.
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
            try Self.check(tag, line: line)
            self.marked.append(contentsOf: rest[..<opening.upperBound])
            self.marked += Self.marking(tag) + "}}"
            line += tag.count { $0.isNewline }
            rest = inside[closing.upperBound...]
        }
        self.marked.append(contentsOf: rest)
    }

    /// Returns the name of a member without its mark; nil for a name that follows no dot.
    static func member(_ name: String) -> String? {
        name.first == Self.memberMark ? String(name.dropFirst()) : nil
    }

    private static func marking(_ tag: Substring) -> String {
        var marked = ""
        var followsDot = false
        for character in tag {
            if followsDot, !".)}".contains(character), !character.isWhitespace { marked.append(Self.memberMark) }
            marked.append(character)
            followsDot = character == "."
        }
        return marked
    }

    private static func check(_ tag: Substring, line: Int) throws(TemplateSyntaxFault) {
        switch tag.first {
        case "!": return
        case ">", "<", "$": throw TemplateSyntaxFault(line: line, reason: "partials and blocks are not supported")
        case "=": throw TemplateSyntaxFault(line: line, reason: "delimiters must be {{ and }}")
        case "%": throw TemplateSyntaxFault(line: line, reason: "pragmas are not supported")
        default: break
        }
        guard !tag.contains(Self.memberMark) else { throw TemplateSyntaxFault(line: line, reason: Self.badName) }
        let name = tag.drop { "#^/&{".contains($0) || $0.isWhitespace }
            .prefix { $0 != "}" && !$0.isWhitespace }
        guard !name.isEmpty else { throw TemplateSyntaxFault(line: line, reason: "a tag has no name") }
        let parts = name.split(separator: "(", omittingEmptySubsequences: false).map { String($0) }
        if let unknown = parts.dropLast().first(where: { !Self.functions.contains($0) }) {
            let hint = Spelling.nearest(to: unknown, of: Self.functions).map { "; did you mean \($0)?" } ?? ""
            throw TemplateSyntaxFault(line: line, reason: "unknown function \"\(unknown)\"\(hint)")
        }
        if let function = parts.dropLast().last, parts.last?.first == ")", !Self.indexFunctions.contains(function) {
            throw TemplateSyntaxFault(line: line, reason: "\(function) needs a variable")
        }
        if let function = parts.dropLast().dropFirst().first(where: { Self.booleanFunctions.contains($0) }) {
            throw TemplateSyntaxFault(line: line, reason: "no function takes the true or false of \(function)")
        }
    }
}
