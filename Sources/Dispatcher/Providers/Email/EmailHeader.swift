// Carillon · EmailHeader.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials

/// Writes the header of a message: ASCII lines that no value can end (RFC 5322 section 2.2, RFC 2047).
struct EmailHeader {
    /// Why a field cannot be written.
    struct Fault: Error, Equatable {
        let field: String
    }

    /// What lines should not exceed, their end not counted.
    private static let lineLength = 78
    /// The most bytes of text in one encoded-word, so that it fits behind a field's name: 64 characters with `=?utf-8?B?`
    /// and `?=`, in groups of three.
    private static let wordBytes = 39
    /// What a word may have before it is encoded, so that folding finds its places.
    private static let longestWord = 60

    private(set) var bytes: [UInt8] = []

    /// Adds a field whose value is made of atoms of ours: addresses, dates, tokens.
    ///
    /// - Throws: ``Fault`` if the value is not printable ASCII; a line break in it would be another field.
    mutating func add(_ name: String, _ value: String) throws(Fault) {
        guard value.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) else { throw Fault(field: name) }
        self.write(name, value.split(separator: " "))
    }

    /// Adds a field of text for people.
    ///
    /// Controls, line breaks among them, become blanks; what is not ASCII becomes encoded-words.
    mutating func add(_ name: String, text: String) throws(Fault) {
        try self.add(name, Self.phrase(text))
    }

    /// Adds a field of a display name and an address.
    mutating func add(_ name: String, _ display: String?, _ address: EmailAddress) throws(Fault) {
        guard let display, !display.isEmpty else { return try self.add(name, address.description) }
        let phrase = Self.isPlain(display) ? "\"\(Self.quoted(display))\"" : Self.encoded(display)
        try self.add(name, "\(phrase) <\(address)>")
    }

    /// Ends the header.
    mutating func end() {
        self.bytes += "\r\n".utf8
    }

    private mutating func write(_ name: String, _ words: [Substring]) {
        self.bytes += name.utf8
        self.bytes.append(UInt8(ascii: ":"))
        var length = name.utf8.count + 1
        for (index, word) in words.enumerated() {
            if index > 0, length + 1 + word.utf8.count > Self.lineLength {
                self.bytes += "\r\n".utf8
                length = 0
            }
            self.bytes.append(UInt8(ascii: " "))
            self.bytes += word.utf8
            length += 1 + word.utf8.count
        }
        self.bytes += "\r\n".utf8
    }

    // MARK: Text

    /// Text as it stands in a field.
    static func phrase(_ text: String) -> String {
        let line = self.oneLine(text)
        let needsEncoding =
            !self.isPlain(line) || line.contains("=?")
            || line.split(separator: " ").contains { $0.utf8.count > self.longestWord }
        return needsEncoding ? self.encoded(line) : line
    }

    /// The text with every run of blanks and controls as one blank.
    static func oneLine(_ text: String) -> String {
        let isGap = { (scalar: Unicode.Scalar) in
            scalar.properties.isWhitespace || scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
        }
        let words = text.unicodeScalars.split(whereSeparator: isGap)
        return words.map { String(String.UnicodeScalarView($0)) }.joined(separator: " ")
    }

    private static func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F } }

    private static func quoted(_ text: String) -> String {
        text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
    }

    /// Encoded-words of base64, each whole characters of UTF-8 (RFC 2047 section 5).
    private static func encoded(_ text: String) -> String {
        var words: [String] = []
        var part: [UInt8] = []
        func close() {
            guard !part.isEmpty else { return }
            words.append("=?utf-8?B?\(Data(part).base64EncodedString())?=")
            part = []
        }
        for scalar in text.unicodeScalars {
            let bytes = Array(String(scalar).utf8)
            if part.count + bytes.count > self.wordBytes { close() }
            part += bytes
        }
        close()
        return words.joined(separator: " ")
    }
}
