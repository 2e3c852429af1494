// Carillon · PartTags.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// The hash tags of parts, which other programs read from the key ``Keyspace/partTags``.
///
/// The tag of part `i` of `n` is the first word of the letters a to z, by length and then
/// alphabetically, whose slot is `(2 i + 1) · 16384 / 2 n`. This spreads the parts evenly over any
/// number of masters.
enum PartTags {
    private static let known = Mutex<[Int: [String]]>([:])

    /// Returns the tags of `count` parts.
    static func all(_ count: Int) -> [String] {
        self.known.withLock { known in
            if let tags = known[count] { return tags }
            let tags = Self.find(count)
            known[count] = tags
            return tags
        }
    }

    private static func find(_ count: Int) -> [String] {
        var parts: [Int: Int] = [:]
        for part in 0..<count { parts[(2 * part + 1) * RedisSlot.count / (2 * count)] = part }
        var tags = [String](repeating: "", count: count)
        var word: [UInt8] = [UInt8(ascii: "a")]
        while !parts.isEmpty {
            if let part = parts.removeValue(forKey: RedisSlot.of(word)) {
                tags[part] = String(decoding: word, as: UTF8.self)
            }
            Self.advance(&word)
        }
        return tags
    }

    /// Replaces a word by the next one, as in `a`, `b` … `z`, `aa`, `ab`.
    private static func advance(_ word: inout [UInt8]) {
        var index = word.count - 1
        while index >= 0, word[index] == UInt8(ascii: "z") {
            word[index] = UInt8(ascii: "a")
            index -= 1
        }
        if index >= 0 { word[index] += 1 } else { word.insert(UInt8(ascii: "a"), at: 0) }
    }
}
