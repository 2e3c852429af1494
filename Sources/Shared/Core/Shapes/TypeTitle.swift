// Carillon · TypeTitle.swift
// SPDX-License-Identifier: Apache-2.0

/// A type's name as people read it.
package enum TypeTitle {
    /// The words of a name, each with a capital: `AllowanceDeposit` and `allowance_deposit` are `Allowance Deposit`; a run
    /// of capitals stays together.
    package static func text(_ name: String) -> String {
        var words: [String] = []
        var word = ""
        let characters = Array(name)
        for (index, character) in characters.enumerated() {
            guard character.isLetter || character.isNumber else {
                words.append(word)
                word = ""
                continue
            }
            let previous = index > 0 ? characters[index - 1] : nil
            let next = index + 1 < characters.count ? characters[index + 1] : nil
            let beginsWord =
                character.isUppercase && (previous?.isUppercase == false || next?.isLowercase == true)
            if beginsWord {
                words.append(word)
                word = ""
            }
            word.append(character)
        }
        words.append(word)
        return words.filter { !$0.isEmpty }.map { $0.prefix(1).uppercased() + $0.dropFirst() }.joined(separator: " ")
    }
}
