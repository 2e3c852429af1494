// Carillon · MailText.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation

@testable import Providers

/// A parsed message of ours.
struct MailText {
    let raw: String
    let headerLines: [String]
    /// The unfolded fields in order.
    let fields: [(name: String, value: String)]
    /// The decoded parts by type.
    let parts: [String: String]

    init(_ content: [UInt8]) {
        let raw = String(decoding: content, as: UTF8.self)
        self.raw = raw
        let halves = raw.components(separatedBy: "\r\n\r\n")
        self.headerLines = halves[0].components(separatedBy: "\r\n")
        var fields: [(name: String, value: String)] = []
        for line in self.headerLines {
            if line.hasPrefix(" "), let last = fields.popLast() {
                fields.append((last.name, last.value + line))
            } else {
                let pair = line.split(separator: ":", maxSplits: 1)
                fields.append((String(pair[0]), String(pair.count > 1 ? pair[1].dropFirst() : "")))
            }
        }
        self.fields = fields
        var parts: [String: String] = [:]
        for (type, next) in [("text/plain", "text/html"), ("text/html", "")] {
            guard let start = raw.range(of: "Content-Type: \(type)"),
                let body = raw.range(of: "\r\n\r\n", range: start.upperBound..<raw.endIndex),
                let end = raw.range(of: next.isEmpty ? "--\r\n" : "\r\n--=_", range: body.upperBound..<raw.endIndex)
            else { continue }
            var text = String(raw[body.upperBound..<end.lowerBound])
            if next.isEmpty, let mark = text.range(of: "\r\n--=_", options: .backwards) {
                text = String(text[..<mark.lowerBound])
            }
            parts[type] = Self.decoded(text)
        }
        self.parts = parts
    }

    static func make(
        from sender: String = "Carillon <notices@example.com>",
        to recipient: String = "ada@example.com",
        unsubscribe: String? = nil,
        words: (locale: String?, typeTitle: String?) = (nil, nil),
        _ change: (inout Core.Notification) -> Void = { _ in }
    ) throws -> MailText {
        var message = Messages.make(change)
        message.locale = words.locale
        message.typeTitle = words.typeTitle
        return MailText(
            try EmailMessage(message, from: EmailSender(sender), to: recipient, unsubscribe: unsubscribe).content)
    }

    /// Returns all values of a field.
    func values(_ name: String) -> [String] { self.fields.filter { $0.name == name }.map(\.value) }

    /// Decodes base64 encoded-words.
    static func words(_ value: String) -> String {
        let parts = value.split(separator: " ").map { word -> String in
            let pieces = word.split(separator: "?", omittingEmptySubsequences: false)
            guard pieces.count == 5, let data = Data(base64Encoded: String(pieces[3])) else { return String(word) }
            return String(decoding: data, as: UTF8.self)
        }
        return parts.joined()
    }

    private static func decoded(_ text: String) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.replacingOccurrences(of: "=\r\n", with: "").utf8)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "="), let code = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16) {
                bytes.append(code)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
