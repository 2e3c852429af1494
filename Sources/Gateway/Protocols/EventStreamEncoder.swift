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
    ///   - data: UTF-8. Each line (ended by CR, LF or CRLF) becomes one `data` line; the client
    ///     joins them with LF. Without data, a client dispatches no event and only keeps the id and
    ///     the retry time.
    ///   - name: the event's type, on one line; nil means `message`.
    ///   - id: the value that a client repeats in `Last-Event-ID` when it reconnects.
    ///   - retryMilliseconds: the client's delay before it reconnects, at least 0.
    package static func event(
        data: [UInt8]? = nil,
        name: StaticString? = nil,
        id: Int64? = nil,
        retryMilliseconds: Int64? = nil,
        lineEnd: LineEnd = .lineFeed
    ) -> [UInt8] {
        let end = lineEnd.bytes
        var bytes: [UInt8] = []
        bytes.reserveCapacity((data?.count ?? 0) + 64)
        if let id { Self.append("id", String(id).utf8, end, to: &bytes) }
        if let name { name.withUTF8Buffer { Self.append("event", $0, end, to: &bytes) } }
        if let retryMilliseconds { Self.append("retry", String(retryMilliseconds).utf8, end, to: &bytes) }
        if let data { Self.append(linesOf: data, end, to: &bytes) }
        bytes.append(contentsOf: end)
        return bytes
    }

    /// Encodes an empty comment, which clients skip.
    ///
    /// Comments keep a stream alive; one at the start makes browsers report it as open.
    package static func comment(lineEnd: LineEnd = .lineFeed) -> [UInt8] {
        [UInt8(ascii: ":")] + lineEnd.bytes + lineEnd.bytes
    }

    private static func append(linesOf data: [UInt8], _ end: [UInt8], to bytes: inout [UInt8]) {
        var start = 0
        var index = 0
        while index < data.count {
            let byte = data[index]
            guard byte == 0x0A || byte == 0x0D else {
                index += 1
                continue
            }
            Self.append("data", data[start..<index], end, to: &bytes)
            index += byte == 0x0D && index + 1 < data.count && data[index + 1] == 0x0A ? 2 : 1
            start = index
        }
        Self.append("data", data[start...], end, to: &bytes)
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
