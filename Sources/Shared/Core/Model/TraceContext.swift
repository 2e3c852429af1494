// Carillon · TraceContext.swift
// SPDX-License-Identifier: Apache-2.0

/// A position in a distributed trace: the W3C `traceparent`.
package struct TraceContext: Sendable, Hashable {
    /// The trace id, 16 bytes.
    package let trace: Halves
    package let span: UInt64
    package let flags: UInt8

    /// A trace id in two halves.
    package struct Halves: Sendable, Hashable {
        package let high: UInt64
        package let low: UInt64
    }

    /// Length of version 00: 2, 32, 16 and 2 digits, with dashes between them.
    private static let length = 55

    package init(trace: Halves, span: UInt64, flags: UInt8) {
        self.trace = trace
        self.span = span
        self.flags = flags
    }

    /// Parses a header; nil if malformed, which a receiver treats like no header.
    ///
    /// Reads only the version 00 part of a newer version.
    package init?(_ traceParent: some StringProtocol) {
        let bytes = Array(traceParent.utf8.prefix(Self.length + 1))
        let dash = UInt8(ascii: "-")
        guard bytes.count >= Self.length, bytes[2] == dash, bytes[35] == dash, bytes[52] == dash,
            let version = Self.number(bytes[0..<2]), version != 0xFF,
            bytes.count == Self.length || version > 0 && bytes[Self.length] == dash,
            let high = Self.number(bytes[3..<19]), let low = Self.number(bytes[19..<35]), high | low != 0,
            let span = Self.number(bytes[36..<52]), span != 0, let flags = Self.number(bytes[53..<55])
        else { return nil }
        self.init(trace: Halves(high: high, low: low), span: span, flags: UInt8(truncatingIfNeeded: flags))
    }

    /// Whether the trace's origin records it.
    package var isSampled: Bool { self.flags & 1 == 1 }

    /// The header, version 00.
    package var traceParent: String {
        "00-\(self.traceID)-\(self.spanID)-" + Self.digits(UInt64(self.flags & 1), count: 2)
    }

    /// 32 hexadecimal digits.
    package var traceID: String { Self.digits(self.trace.high) + Self.digits(self.trace.low) }

    /// 16 hexadecimal digits.
    package var spanID: String { Self.digits(self.span) }

    /// Returns another span of the same trace.
    package func with(span: UInt64) -> TraceContext { TraceContext(trace: self.trace, span: span, flags: self.flags) }

    /// A span id as 16 hexadecimal digits.
    package static func digits(_ value: UInt64) -> String { self.digits(value, count: 16) }

    private static func digits(_ value: UInt64, count: Int) -> String {
        let text = String(value, radix: 16)
        return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
    }

    /// Parses lower-case hexadecimal digits.
    private static func number(_ digits: ArraySlice<UInt8>) -> UInt64? {
        var value: UInt64 = 0
        for digit in digits {
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(digit - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(digit - UInt8(ascii: "a") + 10)
            default: return nil
            }
        }
        return value
    }
}
