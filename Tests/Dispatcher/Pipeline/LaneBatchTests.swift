// Carillon · LaneBatchTests.swift
// SPDX-License-Identifier: Apache-2.0

import Storage
import Testing

@testable import Pipeline

@Suite(.timeLimit(.minutes(10)))
struct LaneBatchTests {
    /// An entry for `users` users; 0 stands for one user in the field `user`.
    private static func entry(_ users: Int) -> StreamEntry {
        let names = (0..<users).map { "\"u\($0)\"" }.joined(separator: ",")
        let audience = users == 0 ? ("user", "u") : ("users", "[\(names)]")
        let fields = [audience, ("type", "t"), ("title", "a, b, c")]
        return StreamEntry(id: "1-1", fields: fields.map { (name: $0.0, value: Array($0.1.utf8)[...]) })
    }

    @Test(
        "splits a batch before it has too many recipients, never within an entry",
        arguments: [
            ([], []),
            ([0, 0, 0], [0..<3]),
            ([1_000, 1_000], [0..<2]),
            ([1_000, 1_000, 0], [0..<2, 2..<3]),
            ([0, 1_000, 1_000, 1_000, 1_000], [0..<2, 2..<4, 4..<5]),
            ([5_000, 0, 5_000], [0..<1, 1..<2, 2..<3]),
            ([5_000], [0..<1]),
        ] as [([Int], [Range<Int>])]
    )
    func parts(users: [Int], expected: [Range<Int>]) {
        #expect(LaneBatch.parts(of: users.map(Self.entry), recipients: 2_000) == expected)
    }

    @Test("counts a deleted entry as one recipient")
    func deleted() {
        let entries = [StreamEntry(id: "1-1", fields: nil), Self.entry(1_999), Self.entry(0)]
        #expect(LaneBatch.parts(of: entries, recipients: 2_000) == [0..<2, 2..<3])
    }
}
