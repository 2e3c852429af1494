// Carillon · OperatorCountsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Operations
import Testing

@testable import Core
@testable import HTTP
@testable import Storage

/// Counts for operators that do not cover all of the requested time.
@Suite("Counts for operators", .timeLimit(.minutes(10)))
struct OperatorCountsTests {
    private static let minute = Timestamp(seconds: 1_800_000_000)

    /// Counts of three minutes, and of one type.
    private static func summary(typesStart: Timestamp? = nil) -> StatisticsStore.Summary {
        var reach = Reach()
        reach.stored = 7
        return StatisticsStore.Summary(
            since: Self.minute,
            skippedMinutes: 57,
            isComplete: false,
            counts: [
                StatisticsStore.Count(
                    minute: Self.minute + .seconds(60), channel: "fcm", outcome: "accepted", count: 4)
            ],
            types: [(type: "news", reach: reach)],
            typesStart: typesStart
        )
    }

    private static func json(_ write: (inout JSONWriter) -> Void) throws -> JSONValue {
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        write(&writer)
        writer.endObject()
        return try JSONParser.parse(writer.bytes)
    }

    @Test("series end with the minute in which they were counted, whatever time it is now")
    func series() throws {
        let json = try Self.json { StatisticsStore.Summary.shape.writeMembers(of: Self.summary(), to: &$0) }
        let outcome = json["channels"]?.array?.first?["outcomes"]?.array?.first
        #expect(outcome?["counts"]?.array?.map(\.integer) == [0, 4, 0])
    }

    @Test("the catalog has no counts that lack a part of the last 24 hours")
    func partial() throws {
        let catalog = try CatalogParser.parse([("c.yaml", "types: {news: {}, quiet: {}}")])
        let register = CatalogRegister(catalog, now: { Self.minute })
        func sent(_ summary: StatisticsStore.Summary?) throws -> [Int64?] {
            let json = try Self.json { CatalogReport.shape.writeMembers(of: CatalogReport(register, summary), to: &$0) }
            let types = json["types"]?.array ?? []
            return ["news", "quiet"].map { name in types.first { $0["name"]?.string == name }?["sent"]?.integer }
        }
        let whole = try sent(Self.summary())
        #expect(whole == [7, 0])
        let cut = try sent(Self.summary(typesStart: Self.minute))
        #expect(cut == [nil, nil])
        let unknown = try sent(nil)
        #expect(unknown == [nil, nil])
    }
}
