// Carillon · JSONFault.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a text is not JSON that can be stored and sent on.
package struct JSONFault: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Kind: String, Sendable {
        case invalid = "not valid JSON"
        case invalidUTF8 = "not valid UTF-8"
        /// RFC 8259 section 8.2 leaves lone surrogates to the receiver; no UTF-8 text can hold one.
        case loneSurrogate = "JSON with a lone surrogate"
        /// PostgreSQL's text cannot hold it.
        case nul = "JSON with the character U+0000"
        case tooDeep = "JSON nested too deeply"
        case duplicateKey = "JSON with a key that occurs twice"
    }

    package let kind: Kind
    /// Bytes from the start of the text.
    package let offset: Int

    package init(_ kind: Kind, at offset: Int) {
        self.kind = kind
        self.offset = offset
    }

    package var description: String { "\(self.kind.rawValue) at byte \(self.offset)" }
}
