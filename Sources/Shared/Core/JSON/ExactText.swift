// Carillon · ExactText.swift
// SPDX-License-Identifier: Apache-2.0

/// Text that equals only the same code points.
///
/// `String` takes canonically equivalent texts for equal: "é" in one scalar and in two. Names in JSON
/// (RFC 8259 section 8.3) and opaque identifiers are different then.
package struct ExactText: Hashable, Comparable, Sendable {
    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package static func == (left: ExactText, right: ExactText) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }

    package func hash(into hasher: inout Hasher) {
        var text = self.text
        text.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }

    /// By bytes, which orders by code points.
    package static func < (left: ExactText, right: ExactText) -> Bool {
        left.text.utf8.lexicographicallyPrecedes(right.text.utf8)
    }

    /// Each text once, ordered by bytes.
    package static func distinct(_ texts: some Sequence<String>) -> [String] {
        Set(texts.map { ExactText($0) }).sorted().map(\.text)
    }
}
