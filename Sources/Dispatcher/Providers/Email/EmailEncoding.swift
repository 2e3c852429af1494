// Carillon · EmailEncoding.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Writes message headers as ASCII lines that no value can break (RFC 5322 section 2.2, RFC 2047).
struct EmailHeader {
    /// The field that cannot be written.
    struct Fault: Error, Equatable {
        let field: String
    }

    /// The recommended line length without the line break.
    private static let lineLength = 78
    /// The most bytes of text in one encoded-word, so that it fits after a field's name: 64
    /// characters with `=?utf-8?B?` and `?=`, in groups of three.
    private static let wordBytes = 39
    /// Longer words are encoded, so that folding finds places to break.
    private static let longestWord = 60

    private(set) var bytes: [UInt8] = []

    /// Adds a field with a value of our own: addresses, dates, tokens.
    ///
    /// - Throws: ``Fault`` if the value is not printable ASCII; a line break would inject a field.
    mutating func add(_ name: String, _ value: String) throws(Fault) {
        guard value.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) else { throw Fault(field: name) }
        self.write(name, value.split(separator: " "))
    }

    /// Adds a field of text for people.
    ///
    /// Replaces control characters, including line breaks, with spaces; encodes text that is not
    /// ASCII.
    mutating func add(_ name: String, text: String) throws(Fault) {
        try self.add(name, Self.phrase(text))
    }

    /// Adds a field with a display name and an address.
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

    /// Returns the text in the form for a field.
    static func phrase(_ text: String) -> String {
        let line = text.oneLine
        let needsEncoding =
            !self.isPlain(line) || line.contains("=?")
            || line.split(separator: " ").contains { $0.utf8.count > self.longestWord }
        return needsEncoding ? self.encoded(line) : line
    }

    private static func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F } }

    private static func quoted(_ text: String) -> String {
        text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
    }

    /// Encodes as base64 encoded-words, each of whole UTF-8 characters (RFC 2047 section 5).
    private static func encoded(_ text: String) -> String {
        var words: [String] = []
        var part: [UInt8] = []
        func close() {
            guard !part.isEmpty else { return }
            words.append("=?utf-8?B?\(Base64.standard.encode(part))?=")
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

/// Formats times for message headers (RFC 5322 section 3.3).
enum EmailDate {
    private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Returns a time such as `Sat, 21 Nov 2026 23:20:14 +0000`.
    static func text(_ moment: Timestamp) -> String {
        let seconds = max(0, moment.seconds)
        let days = Int(seconds / 86_400)
        let second = Int(seconds % 86_400)
        let date = Timestamp.date(days: days)
        // 1970-01-01 was a Thursday.
        let weekday = self.weekdays[days % 7]
        let time = [second / 3_600, second / 60 % 60, second % 60].map { $0 < 10 ? "0\($0)" : "\($0)" }
        let clock = time.joined(separator: ":")
        return "\(weekday), \(date.day) \(self.months[date.month - 1]) \(date.year) \(clock) +0000"
    }
}

/// Encodes text as ASCII lines of at most 76 characters (RFC 2045 section 6.7).
enum QuotedPrintable {
    private static let lineLength = 76
    private static let digits = Array("0123456789ABCDEF".utf8)

    /// Returns the encoded text with CRLF after every line, the last included.
    ///
    /// CR, LF and CRLF each end a line of the text.
    static func encode(_ text: String) -> [UInt8] {
        let source = Array(text.utf8)
        var bytes: [UInt8] = []
        bytes.reserveCapacity(source.count + source.count / 8 + 64)
        var length = 0
        func isLineEnd(_ index: Int) -> Bool {
            index == source.count || source[index] == UInt8(ascii: "\n") || source[index] == UInt8(ascii: "\r")
        }
        var index = 0
        while index < source.count {
            let byte = source[index]
            index += 1
            if byte == UInt8(ascii: "\r") || byte == UInt8(ascii: "\n") {
                if byte == UInt8(ascii: "\r"), index < source.count, source[index] == UInt8(ascii: "\n") { index += 1 }
                bytes += "\r\n".utf8
                length = 0
                continue
            }
            let isBlank = byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t")
            // Relays may strip white space at the end of a line.
            let isLiteral =
                isBlank ? !isLineEnd(index) : byte > 0x20 && byte < 0x7F && byte != UInt8(ascii: "=")
            let cost = isLiteral ? 1 : 3
            // A line that continues keeps its last column for the soft break.
            if length + cost > (isLineEnd(index) ? self.lineLength : self.lineLength - 1) {
                bytes += "=\r\n".utf8
                length = 0
            }
            if isLiteral {
                bytes.append(byte)
            } else {
                bytes.append(UInt8(ascii: "="))
                bytes.append(self.digits[Int(byte >> 4)])
                bytes.append(self.digits[Int(byte & 0xF)])
            }
            length += cost
        }
        if length > 0 || bytes.isEmpty { bytes += "\r\n".utf8 }
        return bytes
    }
}
