// Carillon · JSONWritable.swift
// SPDX-License-Identifier: Apache-2.0

/// A value that a member of a JSON object can have.
package protocol JSONWritable: SendableMetatype {
    /// Whether some values are null.
    static var isNullable: Bool { get }

    func write(to writer: inout JSONWriter)
}

extension JSONWritable {
    package static var isNullable: Bool { false }
}

extension Identifier: JSONWritable {}
/// Written as ``rfc3339``.
extension Timestamp: JSONWritable {}

extension String: JSONWritable {
    package func write(to writer: inout JSONWriter) { writer.string(self) }
}

extension Bool: JSONWritable {
    package func write(to writer: inout JSONWriter) { writer.bool(self) }
}

extension Int: JSONWritable {
    package func write(to writer: inout JSONWriter) { writer.integer(self) }
}

extension Int32: JSONWritable {
    package func write(to writer: inout JSONWriter) { writer.integer(self) }
}

extension Int64: JSONWritable {
    package func write(to writer: inout JSONWriter) { writer.integer(self) }
}

/// Writes null for nil.
extension Optional: JSONWritable where Wrapped: JSONWritable {
    package static var isNullable: Bool { true }

    package func write(to writer: inout JSONWriter) {
        if let self { self.write(to: &writer) } else { writer.null() }
    }
}

extension Array: JSONWritable where Element: JSONWritable {
    package func write(to writer: inout JSONWriter) {
        writer.beginArray()
        for element in self { element.write(to: &writer) }
        writer.endArray()
    }
}

/// Numbers by name, as an object.
package struct CountsByName<Count: BinaryInteger & SendableMetatype>: JSONWritable {
    private let counts: [(name: String, count: Count)]

    package init(_ counts: [(name: String, count: Count)]) { self.counts = counts }

    package func write(to writer: inout JSONWriter) {
        writer.beginObject()
        for (name, count) in self.counts {
            writer.key(escaping: name)
            writer.integer(count)
        }
        writer.endObject()
    }
}
