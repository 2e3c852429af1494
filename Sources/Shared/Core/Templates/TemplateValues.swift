// Carillon · TemplateValues.swift
// SPDX-License-Identifier: Apache-2.0

import Mustache

/// The state of one rendering: the first variable that was missing.
final class TemplateLookup {
    /// The most elements of a list in a section.
    static let longestList = 100

    let memberNames: Set<String>
    /// The first fault.
    private(set) var fault: TemplateVariableFault?

    init(memberNames: Set<String>) {
        self.memberNames = memberNames
    }

    func note(_ name: String, _ reason: String) {
        if self.fault == nil { self.fault = TemplateVariableFault(name: name, reason: reason) }
    }

    /// Returns the stand-in for a member that a value lacks.
    ///
    /// After a dot it is missing. Otherwise it is nil, so that the renderer searches the outer
    /// scopes.
    func missingMember(_ name: String, of path: String) -> MissingValue? {
        self.memberNames.contains(name) ? MissingValue(path: "\(path).\(name)", lookup: self) : nil
    }

    /// Returns a JSON value for the renderer; nil for null, which counts as missing.
    func value(_ json: JSONValue, path: String) -> Any? {
        switch json {
        case .null: return nil
        case .bool(let value): return PlainValue(value ? "true" : "false", isNull: !value, path, self)
        case .number(let text): return PlainValue(text, isNull: false, path, self)
        case .string(let text): return PlainValue(text, isNull: text.isEmpty, path, self)
        case .object(let members): return ScopeValue(members, lookup: self, path: path)
        case .array(let elements):
            guard elements.count <= Self.longestList else {
                self.note(path, "has more than \(Self.longestList) elements")
                return nil
            }
            return ListValue(elements.compactMap { self.value($0, path: path) }, lookup: self, path: path)
        }
    }
}

/// An object whose members are looked up.
struct ScopeValue: MustacheParent, MustacheCustomRenderable {
    private let members: [JSONMember]
    private let lookup: TemplateLookup
    private let path: String
    private let isRoot: Bool

    init(_ members: [JSONMember], lookup: TemplateLookup, path: String = "", isRoot: Bool = false) {
        self.members = members
        self.lookup = lookup
        self.path = path
        self.isRoot = isRoot
    }

    func child(named name: String) -> Any? {
        let path = self.isRoot ? name : "\(self.path).\(name)"
        if let member = self.members.first(where: { $0.key == name }),
            let value = self.lookup.value(member.value, path: path)
        {
            return value
        }
        // Within a section, the renderer searches the outer scopes; only the root reports a missing
        // name.
        guard self.isRoot else { return self.lookup.missingMember(name, of: self.path) }
        return MissingValue(path: path, lookup: self.lookup)
    }

    var renderText: String {
        self.lookup.note(self.path, TemplateVariableFault.object)
        return ""
    }

    var isNull: Bool { false }
}

/// A text, number or boolean; a section takes an empty text for false.
struct PlainValue: MustacheParent, MustacheTransformable, MustacheCustomRenderable {
    let renderText: String
    let isNull: Bool
    private let path: String
    private let lookup: TemplateLookup

    init(_ text: String, isNull: Bool, _ path: String, _ lookup: TemplateLookup) {
        self.renderText = text
        self.isNull = isNull
        self.path = path
        self.lookup = lookup
    }

    func child(named name: String) -> Any? { self.lookup.missingMember(name, of: self.path) }

    func transform(_ name: String) -> Any? { self.renderText.transform(name) }
}

/// A list that a section iterates.
struct ListValue: MustacheSequence, MustacheParent, MustacheTransformable, MustacheCustomRenderable {
    private let elements: [Any]
    private let lookup: TemplateLookup
    private let path: String

    init(_ elements: [Any], lookup: TemplateLookup, path: String) {
        self.elements = elements
        self.lookup = lookup
        self.path = path
    }

    func makeIterator() -> IndexingIterator<[Any]> { self.elements.makeIterator() }

    func child(named name: String) -> Any? { self.lookup.missingMember(name, of: self.path) }

    func transform(_ name: String) -> Any? { self.elements.transform(name) }

    var renderText: String {
        self.lookup.note(self.path, TemplateVariableFault.list)
        return ""
    }

    var isNull: Bool { false }
}

/// A missing value: false for a section, a fault if its text is needed.
struct MissingValue: MustacheParent, MustacheTransformable, MustacheCustomRenderable {
    let path: String
    let lookup: TemplateLookup

    func child(named name: String) -> Any? { MissingValue(path: "\(self.path).\(name)", lookup: self.lookup) }

    func transform(_ name: String) -> Any? { self }

    var renderText: String {
        self.lookup.note(self.path, TemplateVariableFault.missing)
        return ""
    }

    var isNull: Bool { true }
}
