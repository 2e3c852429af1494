// Carillon · TemplateValues.swift
// SPDX-License-Identifier: Apache-2.0

import Mustache

/// The state of one rendering: the first variable that was missing or unsuitable.
final class TemplateLookup {
    /// The most elements of a list in a section.
    static let longestList = 100

    /// The first fault.
    private(set) var fault: TemplateVariableFault?

    func recordFault(_ name: String, _ reason: String) {
        if self.fault == nil { self.fault = TemplateVariableFault(name: name, reason: reason) }
    }

    /// Returns the stand-in for a member that a value lacks.
    ///
    /// A name after a dot is missing. For other names, nil makes the renderer search the outer
    /// scopes.
    func missingMember(_ name: String, of path: String) -> MissingValue? {
        TemplateTags.member(name).map { MissingValue(path: "\(path).\($0)", lookup: self) }
    }

    /// Returns a function's result for the renderer.
    ///
    /// - Parameter result: nil if the function does not suit the value at `path`, which is a fault.
    func value(_ result: Any?, of function: String, path: String) -> Any? {
        let call = "\(function)(\(path))"
        switch result {
        case nil:
            self.recordFault(path, TemplateVariableFault.unsuitable(for: function))
            return nil
        // A section for a boolean does not change the current list element.
        case let flag as Bool: return flag
        case let number as Int: return PlainValue("\(number)", isNull: false, call, self, number: number)
        case let text?: return self.value(.string("\(text)"), path: call)
        }
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
                self.recordFault(path, "has more than \(Self.longestList) elements")
                return nil
            }
            return ListValue(elements.compactMap { self.value($0, path: path) }, lookup: self, path: path)
        }
    }
}

/// An object whose members are looked up.
struct ScopeValue: MustacheParent, MustacheTransformable, MustacheCustomRenderable {
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

    func child(named tagName: String) -> Any? {
        let member = TemplateTags.member(tagName)
        let name = member ?? tagName
        let path = self.isRoot ? name : "\(self.path).\(name)"
        if let found = self.members.first(where: { $0.key == name }),
            let value = self.lookup.value(found.value, path: path)
        {
            return value
        }
        // Within a section, the renderer searches the outer scopes for a name that follows no dot;
        // only the root reports it as missing.
        guard self.isRoot || member != nil else { return nil }
        return MissingValue(path: path, lookup: self.lookup)
    }

    func transform(_ name: String) -> Any? { self.lookup.value(nil, of: name, path: self.path) }

    var renderText: String {
        self.lookup.recordFault(self.path, TemplateVariableFault.object)
        return ""
    }

    var isNull: Bool { false }
}

/// A text, number or boolean; in a section, empty text counts as false.
struct PlainValue: MustacheParent, MustacheTransformable, MustacheCustomRenderable {
    let renderText: String
    let isNull: Bool
    private let path: String
    private let lookup: TemplateLookup
    private let number: Int?

    /// - Parameter number: the number that a function returned; nil for text. Numbers and texts
    ///   take different functions.
    init(_ text: String, isNull: Bool, _ path: String, _ lookup: TemplateLookup, number: Int? = nil) {
        self.renderText = text
        self.isNull = isNull
        self.path = path
        self.lookup = lookup
        self.number = number
    }

    func child(named name: String) -> Any? { self.lookup.missingMember(name, of: self.path) }

    func transform(_ name: String) -> Any? {
        let result: Any? = if let number { number.transform(name) } else { self.renderText.transform(name) }
        return self.lookup.value(result, of: name, path: self.path)
    }
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

    func transform(_ name: String) -> Any? {
        let call = "\(name)(\(self.path))"
        switch name {
        case "first", "last":
            let element: Any? = name == "first" ? self.elements.first : self.elements.last
            guard let element else { return MissingValue(path: call, lookup: self.lookup) }
            return element
        case "reversed": return ListValue(self.elements.reversed(), lookup: self.lookup, path: call)
        default: return self.lookup.value(self.elements.transform(name), of: name, path: self.path)
        }
    }

    var renderText: String {
        self.lookup.recordFault(self.path, TemplateVariableFault.list)
        return ""
    }

    var isNull: Bool { false }
}

/// A missing value: false for a section, a fault if its text is needed.
struct MissingValue: MustacheParent, MustacheTransformable, MustacheCustomRenderable {
    let path: String
    let lookup: TemplateLookup

    func child(named name: String) -> Any? { self.lookup.missingMember(name, of: self.path) }

    func transform(_ name: String) -> Any? { self }

    var renderText: String {
        self.lookup.recordFault(self.path, TemplateVariableFault.missing)
        return ""
    }

    var isNull: Bool { true }
}
