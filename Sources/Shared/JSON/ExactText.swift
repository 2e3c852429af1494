// Carillon · ExactText.swift
// SPDX-License-Identifier: Apache-2.0

/// Text that equals only the same code points.
///
/// `String` takes canonically equivalent texts for equal: "é" in one scalar and in two. Names in JSON
/// (RFC 8259 section 8.3) and opaque identifiers are different then.
package struct ExactText: Hashable, Sendable {
    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package static func == (left: ExactText, right: ExactText) -> Bool {
        left.text.utf8.elementsEqual(right.text.utf8)
    }

    package func hash(into hasher: inout Hasher) {
        for byte in self.text.utf8 { hasher.combine(byte) }
    }
}
