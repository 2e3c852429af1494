// Carillon · TemplatePieces.swift
// SPDX-License-Identifier: Apache-2.0

/// A text that is put together without the renderer, several times as fast: its tags are plain variables, which most are, and
/// sections that are there or not.
struct TemplatePieces: Sendable {
    private indirect enum Piece: Sendable {
        case text(String)
        case variable([String])
        /// What is there if the value is something, or, inverted, if it is not.
        case section([String], isInverted: Bool, [Piece])
    }

    private let pieces: [Piece]

    /// - Parameter memberNames: the names that stand after a dot in the text.
    /// - Returns: nil for a text that needs the renderer.
    init?(_ source: String, memberNames: Set<String>) {
        var rest = Substring(source)
        guard let pieces = Self.pieces(&rest, in: nil) else { return nil }
        self.pieces = pieces
        // The renderer takes lines away on which only a section's tag stands, and looks names up in what a section is about.
        let sections = pieces.filter { if case .section = $0 { true } else { false } }
        if !sections.isEmpty {
            guard !source.contains(where: \.isNewline) else { return nil }
            guard sections.allSatisfy({ Self.isClear($0, of: memberNames, isOutside: true) }) else { return nil }
        }
    }

    /// Reads up to the end, or to the end of a section.
    private static func pieces(_ rest: inout Substring, in section: Substring?) -> [Piece]? {
        var pieces: [Piece] = []
        while let opening = rest.firstRange(of: "{{") {
            if opening.lowerBound > rest.startIndex { pieces.append(.text(String(rest[..<opening.lowerBound]))) }
            guard let closing = rest[opening.upperBound...].firstRange(of: "}}") else { return nil }
            let tag = rest[opening.upperBound..<closing.lowerBound]
            rest = rest[closing.upperBound...]
            switch tag.first {
            case "#", "^":
                guard let path = Self.path(tag.dropFirst()), let inside = Self.pieces(&rest, in: tag.dropFirst()) else {
                    return nil
                }
                pieces.append(.section(path, isInverted: tag.first == "^", inside))
            case "/":
                return tag.dropFirst() == section ? pieces : nil
            default:
                guard let path = Self.path(tag.drop { $0 == " " }.prefix { $0 != " " }) else { return nil }
                pieces.append(.variable(path))
            }
        }
        guard section == nil else { return nil }
        if !rest.isEmpty { pieces.append(.text(String(rest))) }
        return pieces
    }

    private static func path(_ name: Substring) -> [String]? {
        let path = name.split(separator: ".", omittingEmptySubsequences: false)
        guard path.allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy(Self.isPlain) }) else { return nil }
        return path.map { String($0) }
    }

    /// Whether nothing within a section begins with a name that the renderer would ask the section's value for.
    private static func isClear(_ piece: Piece, of names: Set<String>, isOutside: Bool) -> Bool {
        switch piece {
        case .text: true
        case .variable(let path): isOutside || !names.contains(path[0])
        case .section(let path, _, let inside):
            (isOutside || !names.contains(path[0]))
                && inside.allSatisfy { Self.isClear($0, of: names, isOutside: false) }
        }
    }

    /// - Returns: nil if the variables need the renderer: a section about an object or a list.
    /// - Throws: ``TemplateVariableFault`` for the first variable that is missing or is no text.
    func render(_ variables: TemplateVariables) throws(TemplateVariableFault) -> String? {
        var text = ""
        return try Self.render(self.pieces, variables, to: &text) ? text : nil
    }

    private static func render(
        _ pieces: [Piece],
        _ variables: TemplateVariables,
        to text: inout String
    ) throws(TemplateVariableFault) -> Bool {
        for piece in pieces {
            switch piece {
            case .text(let part): text += part
            case .variable(let path): text += try Self.text(path, variables)
            case .section(let path, let isInverted, let inside):
                guard let isThere = Self.isThere(Self.value(path, variables)) else { return false }
                guard isThere != isInverted else { continue }
                guard try Self.render(inside, variables, to: &text) else { return false }
            }
        }
        return true
    }

    /// Whether a value counts as something; nil if a section about it needs the renderer.
    private static func isThere(_ value: JSONValue) -> Bool? {
        switch value {
        case .null: false
        case .bool(let flag): flag
        case .number: true
        case .string(let text): !text.isEmpty
        case .array(let elements): elements.isEmpty ? false : nil
        case .object: nil
        }
    }

    private static func value(_ path: [String], _ variables: TemplateVariables) -> JSONValue {
        var value = variables.members.first { $0.key == path[0] }?.value ?? .null
        for name in path.dropFirst() { value = value[name] ?? .null }
        return value
    }

    private static func text(
        _ path: [String],
        _ variables: TemplateVariables
    ) throws(TemplateVariableFault) -> String {
        let reason: String
        switch Self.value(path, variables) {
        case .string(let text), .number(let text): return text
        case .bool(let flag): return flag ? "true" : "false"
        case .null: reason = TemplateVariableFault.missing
        case .object: reason = TemplateVariableFault.object
        case .array: reason = TemplateVariableFault.list
        }
        throw TemplateVariableFault(name: path.joined(separator: "."), reason: reason)
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}
