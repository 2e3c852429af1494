// Carillon · ParsedMail.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A parsed e-mail; enforces RFC 5322 and RFC 2045 strictly.
struct ParsedMail {
    struct Fault: Error {
        let reason: String
    }

    private struct Part {
        let type: String
        let text: String
    }

    private static let required = ["from", "to", "date", "message-id", "subject", "mime-version", "content-type"]

    /// The header fields in order, unfolded.
    let fields: [(name: String, value: String)]
    private let parts: [Part]

    init(_ content: [UInt8]) throws(Fault) {
        guard content.allSatisfy({ $0 < 0x80 && $0 != 0 }) else { throw Fault(reason: "The message is not ASCII") }
        let (fields, body) = try Self.split(content[...])
        for name in Self.required {
            let count = fields.count { $0.name.lowercased() == name }
            guard count == 1 else { throw Fault(reason: "\(count) \(name) fields") }
        }
        self.fields = fields
        let type = Self.value("content-type", in: fields)
        guard type.lowercased().hasPrefix("multipart/alternative") else {
            self.parts = [try Self.part(fields, body)]
            return
        }
        guard let boundary = Self.parameter("boundary", of: type), (1...70).contains(boundary.utf8.count) else {
            throw Fault(reason: "No boundary")
        }
        self.parts = try Self.parts(body, boundary: boundary)
    }

    /// The decoded subject.
    var subject: String { Self.decodeWords(Self.value("subject", in: self.fields)) }

    /// Returns the text of the part with this type; nil if there is none.
    func part(_ type: String) -> String? { self.parts.first { $0.type == type }?.text }

    // MARK: Structure

    private static func split(
        _ content: ArraySlice<UInt8>
    ) throws(Fault) -> (fields: [(name: String, value: String)], body: ArraySlice<UInt8>) {
        var fields: [(name: String, value: String)] = []
        var rest = content
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            let line = rest[rest.startIndex..<end].dropLast()
            rest = rest[(end + 1)...]
            if line.isEmpty { return (fields, rest) }
            guard line.count <= 998 else { throw Fault(reason: "A header line is too long") }
            let text = String(decoding: line, as: UTF8.self)
            if text.first == " " || text.first == "\t" {
                guard let last = fields.popLast() else { throw Fault(reason: "The header begins with a folded line") }
                fields.append((last.name, last.value + text))
                continue
            }
            guard let colon = text.firstIndex(of: ":"), colon > text.startIndex,
                text[..<colon].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
            else { throw Fault(reason: "A header line is not a field") }
            let value = text[text.index(after: colon)...].drop { $0 == " " }
            fields.append((String(text[..<colon]), String(value)))
        }
        throw Fault(reason: "The header has no end")
    }

    private static func parts(_ body: ArraySlice<UInt8>, boundary: String) throws(Fault) -> [Part] {
        let lines = String(decoding: body, as: UTF8.self).components(separatedBy: "\r\n")
        var parts: [Part] = []
        var current: [String]?
        for line in lines {
            guard line == "--\(boundary)" || line == "--\(boundary)--" else {
                current?.append(line)
                continue
            }
            if let lines = current {
                let (fields, body) = try self.split(Array((lines.joined(separator: "\r\n")).utf8)[...])
                parts.append(try self.part(fields, body))
            }
            current = []
            if line.hasSuffix("--") { return parts }
        }
        throw Fault(reason: "The last boundary is missing")
    }

    private static func part(
        _ fields: [(name: String, value: String)], _ body: ArraySlice<UInt8>
    ) throws(Fault) -> Part {
        let type = self.value("content-type", in: fields).prefix { $0 != ";" }
        let encoding = self.value("content-transfer-encoding", in: fields).lowercased()
        switch encoding {
        case "quoted-printable":
            return Part(type: String(type), text: String(decoding: try self.quotedPrintable(body), as: UTF8.self))
        case "", "7bit": return Part(type: String(type), text: String(decoding: body, as: UTF8.self))
        default: throw Fault(reason: "Unknown encoding \(encoding)")
        }
    }

    private static func value(_ name: String, in fields: [(name: String, value: String)]) -> String {
        fields.first { $0.name.lowercased() == name }?.value ?? ""
    }

    private static func parameter(_ name: String, of value: String) -> String? {
        for part in value.split(separator: ";").dropFirst() {
            let pair = part.split(separator: "=", maxSplits: 1).map { $0.trimmingCharacters(in: .whitespaces) }
            guard pair.count == 2, pair[0].lowercased() == name else { continue }
            return pair[1].trimmingCharacters(in: CharacterSet(charactersIn: "\""))
        }
        return nil
    }

    // MARK: Encodings

    private static func quotedPrintable(_ body: ArraySlice<UInt8>) throws(Fault) -> [UInt8] {
        var decoded: [UInt8] = []
        for line in String(decoding: body, as: UTF8.self).components(separatedBy: "\r\n") {
            guard line.utf8.count <= 76 else { throw Fault(reason: "A quoted-printable line is too long") }
            guard line.last != " ", line.last != "\t" else { throw Fault(reason: "A line ends with a blank") }
            var rest = Array(line.utf8)[...]
            var isSoft = false
            while let byte = rest.popFirst() {
                guard byte == UInt8(ascii: "=") else {
                    decoded.append(byte)
                    continue
                }
                if rest.isEmpty {
                    isSoft = true
                } else if let code = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16), rest.count >= 2
                {
                    decoded.append(code)
                    rest = rest.dropFirst(2)
                } else {
                    throw Fault(reason: "A = without two hexadecimal digits")
                }
            }
            if !isSoft { decoded += "\r\n".utf8 }
        }
        // The last line has no line ending.
        return Array(decoded.dropLast(2))
    }

    /// Decodes base64 encoded-words in UTF-8; drops the space between two of them (RFC 2047 section
    /// 6.2).
    private static func decodeWords(_ value: String) -> String {
        var text = ""
        var isAfterEncoded = false
        for word in value.split(separator: " ") {
            let parts = word.split(separator: "?", omittingEmptySubsequences: false)
            let data =
                parts.count == 5 && word.hasPrefix("=?") && word.hasSuffix("?=") && parts[2].lowercased() == "b"
                ? Data(base64Encoded: String(parts[3])) : nil
            if !text.isEmpty, !(isAfterEncoded && data != nil) { text += " " }
            text += data.map { String(decoding: $0, as: UTF8.self) } ?? String(word)
            isAfterEncoded = data != nil
        }
        return text
    }
}
