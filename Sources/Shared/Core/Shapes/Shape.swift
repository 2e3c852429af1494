// Carillon · Shape.swift
// SPDX-License-Identifier: Apache-2.0

/// A JSON object of the API: its members in order, each with its schema and how to read its value.
///
/// Names, order, null and absence are declared once for the description and the answer. Nothing
/// checks a value against the rest of its schema.
package struct Shape<Value>: Sendable, ExpressibleByDictionaryLiteral {
    /// A member of the object.
    package struct Member: Sendable {
        /// Writes the name and the member's value.
        fileprivate typealias Write = @Sendable (Value, StaticString, inout JSONWriter) -> Void

        fileprivate let schema: Schema
        fileprivate var isRequired = true
        fileprivate let write: Write
    }

    /// The name of the component; nil for an object that is described where it is used.
    private var name: String?
    /// The members in the description of the API.
    private var fields: Fields
    /// How the members are written, apart from the schemas, which a loop would copy.
    private var writers: [(name: StaticString, write: Member.Write)]

    package init(dictionaryLiteral elements: (StaticString, Member)...) {
        self.fields = Fields(elements.map { ($1.isRequired ? $0.description : $0.description + "?", $1.schema) })
        self.writers = elements.map { ($0, $1.write) }
    }

    /// A named object.
    package init(_ name: String, _ shape: Shape) {
        self = shape
        self.name = name
    }

    package var schema: Schema {
        self.name.map { Schema($0, self.fields) } ?? .object(self.fields)
    }

    /// Writes the object.
    package func write(_ value: Value, to writer: inout JSONWriter) {
        writer.beginObject()
        self.writeMembers(of: value, to: &writer)
        writer.endObject()
    }

    /// Writes the members of the object.
    package func writeMembers(of value: Value, to writer: inout JSONWriter) {
        for (name, write) in self.writers { write(value, name, &writer) }
    }

    /// Returns an unnamed object with these members, for a value that contains this one.
    package func of<Whole>(_ read: @escaping @Sendable (Whole) -> Value) -> Shape<Whole> {
        var shape: Shape<Whole> = [:]
        shape.fields = self.fields
        shape.writers = self.writers.map { name, write in (name, { write(read($0), $1, &$2) }) }
        return shape
    }

    /// Returns an object without a name that has the members of both.
    package static func + (left: Shape, right: Shape) -> Shape {
        var shape: Shape = [:]
        shape.fields = left.fields + right.fields
        shape.writers = left.writers + right.writers
        return shape
    }
}

// MARK: Members

extension Shape.Member {
    /// A member that is null if `read` returns nil.
    ///
    /// - Parameters:
    ///   - schema: the schema of the member, without null.
    ///   - text: the description of the member.
    ///   - read: returns the member's value.
    package static func value<Part: JSONWritable>(
        _ schema: Schema,
        _ text: String? = nil,
        _ read: @escaping @Sendable (Value) -> Part
    ) -> Self {
        .written(Part.isNullable ? schema.orNull : schema, text) { read($0).write(to: &$1) }
    }

    /// A member that is absent if `read` returns nil.
    package static func optional<Part: JSONWritable>(
        _ schema: Schema,
        _ text: String? = nil,
        _ read: @escaping @Sendable (Value) -> Part?
    ) -> Self {
        Self(schema: text.map { schema($0) } ?? schema, isRequired: false) { value, name, writer in
            guard let part = read(value) else { return }
            writer.key(name)
            part.write(to: &writer)
        }
    }

    /// A member whose value `write` writes.
    package static func written(
        _ schema: Schema,
        _ text: String? = nil,
        _ write: @escaping @Sendable (Value, inout JSONWriter) -> Void
    ) -> Self {
        Self(schema: text.map { schema($0) } ?? schema) { value, name, writer in
            writer.key(name)
            write(value, &writer)
        }
    }

    /// A member that is an object.
    package static func object<Part>(
        _ shape: Shape<Part>,
        _ text: String? = nil,
        _ read: @escaping @Sendable (Value) -> Part
    ) -> Self {
        .written(shape.schema, text) { shape.write(read($0), to: &$1) }
    }

    /// A member that is an object, or null for nil.
    package static func object<Part>(
        _ shape: Shape<Part>,
        _ text: String? = nil,
        _ read: @escaping @Sendable (Value) -> Part?
    ) -> Self {
        .written(shape.schema.orNull, text) { value, writer in
            if let part = read(value) { shape.write(part, to: &writer) } else { writer.null() }
        }
    }

    /// A member that is a list of objects.
    ///
    /// - Parameter limit: the most elements that it may have.
    package static func list<Part>(
        of shape: Shape<Part>,
        max limit: Int,
        _ text: String? = nil,
        _ read: @escaping @Sendable (Value) -> some Sequence<Part> & SendableMetatype
    ) -> Self {
        .written(.list(of: shape.schema, max: limit), text) { value, writer in
            writer.beginArray()
            for part in read(value) { shape.write(part, to: &writer) }
            writer.endArray()
        }
    }
}
