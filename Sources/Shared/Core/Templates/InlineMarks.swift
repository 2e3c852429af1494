// Carillon · InlineMarks.swift
// SPDX-License-Identifier: Apache-2.0

/// The marks that the inbox shows as bold, emphasised and code: `**a**`, `_a_` and `` `a` ``.
///
/// `marks.js` has the same rules.
package enum InlineMarks {
    /// Returns a text without its marks, for channels that show plain text.
    package static func plain(_ text: String) -> String {
        // Every push comes through here, and few have marks.
        guard text.utf8.contains(where: Self.isMark) else { return text }
        let scalars = Array(text.unicodeScalars)
        var plain = String.UnicodeScalarView()
        var index = 0
        while index < scalars.count {
            guard let mark = Self.mark(in: scalars, at: index) else {
                plain.append(scalars[index])
                index += 1
                continue
            }
            plain.append(contentsOf: scalars[mark.content])
            index = mark.end
        }
        return String(plain)
    }

    private static func isMark(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "*") || byte == UInt8(ascii: "`") || byte == UInt8(ascii: "_")
    }

    /// Returns the marked text that begins at an index, and the index after it.
    private static func mark(in scalars: [Unicode.Scalar], at start: Int) -> (content: Range<Int>, end: Int)? {
        switch scalars[start] {
        case "*":
            guard start + 1 < scalars.count, scalars[start + 1] == "*" else { return nil }
            return Self.edged(scalars, from: start + 2, mark: "*", width: 2)
        case "_":
            guard start == 0 || !Self.isWord(scalars[start - 1]) else { return nil }
            guard let found = Self.edged(scalars, from: start + 1, mark: "_", width: 1) else { return nil }
            return found.end < scalars.count && Self.isWord(scalars[found.end]) ? nil : found
        case "`":
            guard let close = scalars[(start + 1)...].firstIndex(where: { $0 == "`" || $0 == "\n" }),
                close > start + 1, scalars[close] == "`"
            else { return nil }
            return (start + 1..<close, close + 1)
        default: return nil
        }
    }

    /// Finds the end of a marked text that neither begins nor ends with white space.
    private static func edged(
        _ scalars: [Unicode.Scalar],
        from first: Int,
        mark: Unicode.Scalar,
        width: Int
    ) -> (content: Range<Int>, end: Int)? {
        guard let close = scalars[first...].firstIndex(of: mark), close > first, close + width <= scalars.count,
            scalars[close..<close + width].allSatisfy({ $0 == mark }),
            !scalars[first].properties.isWhitespace, !scalars[close - 1].properties.isWhitespace
        else { return nil }
        return (first..<close, close + width)
    }

    private static func isWord(_ scalar: Unicode.Scalar) -> Bool {
        scalar == "_" || scalar.properties.isAlphabetic || scalar.properties.numericType != nil
    }
}
