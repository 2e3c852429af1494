// Carillon · Mutator.swift
// SPDX-License-Identifier: Apache-2.0

import Support

/// Changes inputs: bits, bytes, cuts, splices, words of a dictionary.
struct Mutator {
    private static let numbers = ["0", "-1", "1", "127", "255", "65535", "2147483648", "9223372036854775807", "1e309"]
    /// The ends of what two and eight bytes can say; behind 0xFE and 0xFF as a WebSocket frame's length.
    private static let binaryNumbers: [[UInt8]] = [
        [0xFF, 0xFF], [0x7F] + [UInt8](repeating: 0xFF, count: 7), [0x80] + [UInt8](repeating: 0, count: 7),
        [0xFE, 0xFF, 0xFF], [0xFF, 0x7F] + [UInt8](repeating: 0xFF, count: 7),
        [UInt8](repeating: 0xFF, count: 9),
    ]

    let dictionary: [[UInt8]]
    let longest: Int

    init(dictionary: [[UInt8]], longest: Int) {
        self.dictionary = dictionary + Self.numbers.map { Array($0.utf8) } + Self.binaryNumbers
        self.longest = longest
    }

    func mutate(_ input: [UInt8], _ other: [UInt8], _ generator: inout SeededGenerator) -> [UInt8] {
        var bytes = input
        for _ in 0..<(1 << Int.random(in: 0...3, using: &generator)) { self.step(&bytes, other, &generator) }
        return Array(bytes.prefix(self.longest))
    }

    private func step(_ bytes: inout [UInt8], _ other: [UInt8], _ generator: inout SeededGenerator) {
        let place = Int.random(in: 0...bytes.count, using: &generator)
        let range = place..<Int.random(in: place...min(bytes.count, place + 32), using: &generator)
        switch Int.random(in: 0...9, using: &generator) {
        case 0 where place < bytes.count: bytes[place] ^= 1 << UInt8.random(in: 0...7, using: &generator)
        case 1 where place < bytes.count: bytes[place] = .random(in: 0...255, using: &generator)
        case 2: bytes.insert(.random(in: 0...255, using: &generator), at: place)
        case 3: bytes.removeSubrange(range)
        case 4: bytes.removeSubrange(place...)
        case 5: bytes.insert(contentsOf: bytes[range], at: place)
        case 6: bytes.replaceSubrange(place..., with: other.suffix(other.count / 2))
        case 7: bytes.insert(contentsOf: other.prefix(64), at: place)
        case 8: bytes.replaceSubrange(range, with: self.word(&generator))
        default: bytes.insert(contentsOf: self.word(&generator), at: place)
        }
    }

    private func word(_ generator: inout SeededGenerator) -> [UInt8] {
        self.dictionary.randomElement(using: &generator) ?? []
    }
}
