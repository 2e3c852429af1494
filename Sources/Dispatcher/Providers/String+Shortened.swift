// Carillon · String+Shortened.swift
// SPDX-License-Identifier: Apache-2.0

extension String {
    /// The beginning of this text, with the mark that shows that there was more, cut between characters.
    ///
    /// - Parameters:
    ///   - excess: by how much it must become smaller, in the unit of `cost`; 0 or less leaves the text as it is.
    ///   - cost: what one byte of UTF-8 takes where the text is going.
    func shortened(by excess: Int, cost: (UInt8) -> Int = { _ in 1 }) -> String {
        guard excess > 0 else { return self }
        let mark = "…"
        func total(_ bytes: some Sequence<UInt8>) -> Int { bytes.reduce(0) { $0 + cost($1) } }
        var room = total(self.utf8) - excess - total(mark.utf8)
        let kept = self.prefix { character in
            room -= total(character.utf8)
            return room >= 0
        }
        return kept + mark
    }
}
