// Carillon · Spelling.swift
// SPDX-License-Identifier: Apache-2.0

/// Suggests a known name for a mistyped one.
package enum Spelling {
    /// The most edits that count as a typing error.
    package static let mostEdits = 2

    /// Returns the name that starts with `word`, otherwise the closest one; nil if none is close.
    package static func nearest(to word: String, of names: [String]) -> String? {
        if word.count > 1, let name = names.first(where: { $0.hasPrefix(word) }) { return name }
        return self.closest(to: word, of: names)
    }

    /// Returns the closest name; nil if none is within `limit` edits.
    package static func closest(
        to word: String,
        of names: [String],
        within limit: Int = Self.mostEdits
    ) -> String? {
        let distances = names.map { (name: $0, edits: Self.edits($0, word)) }
        // A short name is close to too many words.
        return distances.filter { $0.edits <= min(limit, $0.name.count / 3) }
            .min { $0.edits < $1.edits }?.name
    }

    /// Returns the Damerau-Levenshtein distance (optimal string alignment).
    private static func edits(_ one: String, _ other: String) -> Int {
        let (one, other) = (Array(one), Array(other))
        var before: [Int] = []
        var last = Array(0...other.count)
        for (row, letter) in one.enumerated() {
            var next = [row + 1]
            for (column, another) in other.enumerated() {
                var least = min(last[column] + (letter == another ? 0 : 1), last[column + 1] + 1, next[column] + 1)
                if row > 0, column > 0, letter == other[column - 1], another == one[row - 1] {
                    least = min(least, before[column - 1] + 1)
                }
                next.append(least)
            }
            (before, last) = (last, next)
        }
        return last[other.count]
    }
}
