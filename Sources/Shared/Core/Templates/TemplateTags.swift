// Carillon · TemplateTags.swift
// SPDX-License-Identifier: Apache-2.0

/// The tags of a template, looked through before it is compiled.
struct TemplateTags {
    private(set) var isEmpty = true
    /// The second and later parts of dotted names.
    private(set) var memberNames: Set<String> = []

    /// - Throws: ``TemplateSyntaxFault`` for tags that this system does not have: partials, blocks, other delimiters.
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
        case ">", "<", "$": throw TemplateSyntaxFault(line: line, reason: "templates have no parts in other files")
        case "=": throw TemplateSyntaxFault(line: line, reason: "tags are written with {{ and }}")
        case "%": throw TemplateSyntaxFault(line: line, reason: "templates have no settings of their own")
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
