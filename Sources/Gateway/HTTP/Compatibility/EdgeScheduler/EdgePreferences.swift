// Carillon · EdgePreferences.swift
// SPDX-License-Identifier: Apache-2.0

/// How a client wants its answer, as the headers `Prefer` (RFC 7240) and `Accept` say it.
struct EdgePreferences: Equatable {
    /// Whether the rows that were changed come back.
    var returnsRows: Bool
    /// Whether the number of all rows is told.
    var counts: Bool
    /// Whether exactly one row is expected, and comes as an object.
    var isSingle: Bool

    init(prefer: [String], accept: String?) {
        let words = prefer.joined(separator: ",").split(separator: ",").map { word in word.filter { $0 != " " } }
        self.returnsRows = words.contains("return=representation")
        self.counts = words.contains { $0.hasPrefix("count=") }
        self.isSingle = accept?.contains("application/vnd.pgrst.object+json") == true
    }
}
