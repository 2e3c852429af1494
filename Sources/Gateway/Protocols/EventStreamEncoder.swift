// Carillon · EventStreamEncoder.swift
// SPDX-License-Identifier: Apache-2.0

/// Encodes events and comments of a `text/event-stream` (HTML Living Standard, section 9.2).
package enum EventStreamEncoder {
    /// The line ending; clients accept both.
    package enum LineEnd: Sendable {
        case lineFeed
        case carriageReturnLineFeed

        var bytes: [UInt8] {
            switch self {
            case .lineFeed: [0x0A]
            case .carriageReturnLineFeed: [0x0D, 0x0A]
            }
        }
    }

    /// The stream's media type.
    package static let contentType = "text/event-stream"

    /// Encodes one event.
    ///
    /// - Parameters:
    ///   - data: UTF-8. Each line, ended by CR, LF or CRLF, becomes a `data` line, so that the
    ///     client gets LF between them. Without data a client dispatches nothing and only keeps the
    ///     id and the retry time.
    ///   - name: the event's type; nil means `message`.
    ///   - id: the value that a client repeats in `Last-Event-ID` when it reconnects.
    ///   - retryMilliseconds: the client's delay before it reconnects.
    /// - Throws: ``EventStreamFault`` if a name or an id would not survive decoding.
    package static func event(
        data: [UInt8]?,
        name: String? = nil,
        id: String? = nil,
        retryMilliseconds: Int? = nil,
        lineEnd: LineEnd = .lineFeed
    ) throws(EventStreamFault) -> [UInt8] {
        let end = lineEnd.bytes
        var bytes: [UInt8] = []
        bytes.reserveCapacity((data?.count ?? 0) + 64)
        if let id {
            guard !id.utf8.contains(where: { $0 == 0 || $0 == 0x0A || $0 == 0x0D }) else { throw EventStreamFault(.id) }
            Self.append("id", id.utf8, end, to: &bytes)
        }
        if let name {
            guard !name.utf8.contains(where: { $0 == 0x0A || $0 == 0x0D }) else { throw EventStreamFault(.name) }
            Self.append("event", name.utf8, end, to: &bytes)
        }
        if let retryMilliseconds {
            guard retryMilliseconds >= 0 else { throw EventStreamFault(.retry) }
            Self.append("retry", String(retryMilliseconds).utf8, end, to: &bytes)
        }
        if let data { Self.append("data", linesOf: data, end, to: &bytes) }
        bytes.append(contentsOf: end)
        return bytes
    }

    /// Encodes an event with only data.
    static func event(data: [UInt8], lineEnd: LineEnd = .lineFeed) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(data.count + 16)
        Self.append("data", linesOf: data, lineEnd.bytes, to: &bytes)
        bytes.append(contentsOf: lineEnd.bytes)
        return bytes
    }

    /// Encodes a comment, which clients skip.
    ///
    /// Comments keep a stream alive; an empty one at the start makes browsers report it as open.
    package static func comment(_ text: String = "", lineEnd: LineEnd = .lineFeed) -> [UInt8] {
        var bytes: [UInt8] = []
        Self.append("", linesOf: Array(text.utf8), lineEnd.bytes, to: &bytes)
        bytes.append(contentsOf: lineEnd.bytes)
        return bytes
    }

    private static func append(_ field: String, linesOf text: [UInt8], _ end: [UInt8], to bytes: inout [UInt8]) {
        var start = 0
        var index = 0
        while index < text.count {
            let byte = text[index]
            guard byte == 0x0A || byte == 0x0D else {
                index += 1
                continue
            }
            Self.append(field, text[start..<index], end, to: &bytes)
            index += byte == 0x0D && index + 1 < text.count && text[index + 1] == 0x0A ? 2 : 1
            start = index
        }
        Self.append(field, text[start...], end, to: &bytes)
    }

    // A client drops one space after the colon; without ours, data would lose its leading space.
    private static func append(
        _ field: String,
        _ value: some Collection<UInt8>,
        _ end: [UInt8],
        to bytes: inout [UInt8]
    ) {
        bytes.append(contentsOf: field.utf8)
        bytes.append(UInt8(ascii: ":"))
        if !value.isEmpty {
            bytes.append(UInt8(ascii: " "))
            bytes.append(contentsOf: value)
        }
        bytes.append(contentsOf: end)
    }
}

/// The reason why an event cannot be encoded.
package struct EventStreamFault: Error, Sendable, Equatable, CustomStringConvertible {
    enum Field: String, Sendable {
        /// The id contains CR, LF or NUL; a client ignores an id with NUL.
        case id
        /// The name contains CR or LF.
        case name = "event"
        /// The time is negative; a client accepts only digits.
        case retry
    }

    let field: Field

    init(_ field: Field) {
        self.field = field
    }

    package var description: String {
        switch self.field {
        case .id: "the id of an event holds CR, LF or NUL"
        case .name: "the name of an event holds CR or LF"
        case .retry: "the retry time of an event is negative"
        }
    }
}
