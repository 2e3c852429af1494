// Carillon · JobIntake+Words.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

extension JobIntake {
    /// Puts the words in.
    ///
    /// - Returns: letters for those whose locale has none.
    func word(
        _ prepared: inout [PreparedJob],
        wishes: [RecipientStore.Wishes],
        now: Timestamp
    ) -> [DeadLetter] {
        var letters: [DeadLetter] = []
        var position = 0
        for job in prepared.indices {
            let count = prepared[job].notifications.count
            defer { position += count }
            guard prepared[job].needsLocale else { continue }
            let locales = wishes[position..<position + count].map(\.settings.locale)
            guard let refusal = prepared[job].word(locales) else { continue }
            letters.append(
                DeadLetter(
                    stream: prepared[job].origin.latestStream,
                    entry: prepared[job].letterEntry,
                    reason: refusal.faults.description,
                    at: now,
                    fields: refusal.fields
                )
            )
        }
        return letters
    }
}
