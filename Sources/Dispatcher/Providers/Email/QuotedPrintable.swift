// Carillon · QuotedPrintable.swift
// SPDX-License-Identifier: Apache-2.0

/// Text in ASCII lines of at most 76 characters (RFC 2045 section 6.7).
enum QuotedPrintable {
    private static let lineLength = 76
    private static let digits = Array("0123456789ABCDEF".utf8)

    /// The text's encoding, whose lines end with CRLF, the last one too.
    ///
    /// Any of CR, LF and CRLF ends a line of the text.
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
            // A blank at a line's end would be lost on the way.
            let isLiteral =
                isBlank ? !isLineEnd(index) : byte > 0x20 && byte < 0x7F && byte != UInt8(ascii: "=")
            let cost = isLiteral ? 1 : 3
            // The last place of a line that goes on is for the mark that says so.
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
