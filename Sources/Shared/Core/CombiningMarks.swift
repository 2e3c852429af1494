// Carillon · CombiningMarks.swift
// SPDX-License-Identifier: Apache-2.0

/// The limit on combining marks in texts from outside.
///
/// `String` normalizes text to compare or hash it, and sorts each run of marks in quadratic time.
package enum CombiningMarks {
    /// The most in a row; stream-safe text has at most 30 (UAX #15, section 13).
    static let longestRun = 64

    /// The reason for refusing a text.
    package static let fault = "has more than \(longestRun) combining marks in a row"

    /// Whether a text has too many marks in a row.
    package static func areTooMany(in text: String) -> Bool {
        // A mark takes at least two bytes; the first is 0xCC or more.
        guard text.utf8.count > 2 * Self.longestRun, text.utf8.contains(where: { $0 >= 0xCC }) else { return false }
        var run = 0
        for scalar in text.unicodeScalars {
            run = Self.isMark(scalar) ? run + 1 : 0
            if run > Self.longestRun { return true }
        }
        return false
    }

    private static func isMark(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case ..<0x300: false
        // Tibetan vowels of class 0 that decompose into two marks.
        case 0xF73, 0xF75, 0xF81: true
        default: scalar.properties.canonicalCombiningClass != .notReordered
        }
    }
}
