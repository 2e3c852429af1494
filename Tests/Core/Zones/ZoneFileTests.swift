// Carillon · ZoneFileTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

@testable import Core

@Suite struct ZoneFileTests {
    /// A version 2 file without transitions, so that only its footer counts.
    private static func file(_ rule: String, version: Character = "2") -> [UInt8] {
        let block =
            Array("TZif\(version)".utf8) + [UInt8](repeating: 0, count: 15)
            + [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4]
            + [0, 0, 0, 0, 0, 0] + Array("UTC\0".utf8)
        return block + block + Array("\n\(rule)\n".utf8)
    }

    /// The examples of RFC 9636 and POSIX, and variations.
    @Test(arguments: [
        ("EST5EDT,M3.2.0,M11.1.0", "2026-07-01T00:00:00Z", -14_400),
        ("EST5EDT,M3.2.0,M11.1.0", "2026-12-01T00:00:00Z", -18_000),
        ("EST5EDT", "2026-07-01T00:00:00Z", -14_400),
        // Greenland until 2023: changes at 22:00 the day before.
        ("<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", "2022-03-27T00:59:59Z", -10_800),
        ("<-03>3<-02>,M3.5.0/-2,M10.5.0/-1", "2022-03-27T01:00:00Z", -7_200),
        // Daylight saving all year, in both notations.
        ("XXX3EDT4,0/0,J365/23", "2026-01-01T00:00:00Z", -14_400),
        ("XXX3EDT4,0/0,J365/23", "2024-12-31T23:30:00Z", -14_400),
        ("EST5EDT,0/0,J365/25", "2026-12-31T23:59:59Z", -14_400),
        ("EST5EDT,0/0,J365/25", "2027-01-01T05:00:00Z", -14_400),
        // Days of the year: 60 is 29 February or 1 March, J60 is always 1 March.
        ("AAA0BBB,J60/0,J300/0", "2024-02-29T12:00:00Z", 0),
        ("AAA0BBB,J60/0,J300/0", "2024-03-01T00:00:00Z", 3_600),
        ("AAA0BBB,59/0,300/0", "2024-02-29T00:00:00Z", 3_600),
        ("AAA0BBB,59/0,300/0", "2023-03-01T00:00:00Z", 3_600),
        ("AAA0BBB,59/0,300/0", "2023-02-28T23:59:59Z", 0),
        // The southern hemisphere, and an offset with minutes and seconds.
        ("AEST-10AEDT,M10.1.0,M4.1.0/3", "2026-01-01T00:00:00Z", 39_600),
        ("IST-5:30", "2026-01-01T00:00:00Z", 19_800),
        ("<+0020>-0:19:32", "2026-01-01T00:00:00Z", 1_172),
    ])
    func readsRules(rule: String, moment: String, offset: Int) throws {
        for version in "234" {
            let rules = try ZoneRules(Self.file(rule, version: version))
            #expect(rules.offset(at: try #require(Timestamp(rfc3339: moment))) == offset)
        }
    }

    @Test(arguments: [
        "E5", "EST", "EST25", "EST5EDT,", "EST5EDT,M3.2.0", "EST5EDT,M13.2.0,M11.1.0", "EST5EDT,M3.6.0,M11.1.0",
        "EST5EDT,M3.2.7,M11.1.0", "EST5EDT,J0,J365", "EST5EDT,366,0", "EST5EDT,M3.2.0/168,M11.1.0", "<EST5", "EST5 ",
        "EST5EDT,M3.2.0,M11.1.0,", "99999999999",
    ])
    func refusesRules(rule: String) {
        #expect(throws: ZoneFault.self) { try ZoneRules(Self.file(rule)) }
    }

    @Test("without a rule the last offset holds") func lastOffset() throws {
        #expect(try ZoneRules(Self.file("")).offset(at: Timestamp(seconds: 4_000_000_000)) == 0)
    }

    @Test("refuses files that are not zones") func refusesOthers() throws {
        let leaping = Self.file("UTC0").enumerated().map { index, byte in index == 82 ? 1 : byte }
        for bytes in [[], Array("TZif".utf8), Array("PNG".utf8) + [UInt8](repeating: 0, count: 100), leaping] {
            #expect(throws: ZoneFault.self) { try ZoneRules(bytes) }
        }
    }

    /// Version 1: only the first block, with 32 bits and no footer.
    @Test("reads version 1") func versionOne() throws {
        var bytes = try Self.berlin()
        bytes[4] = 0
        let rules = try ZoneRules(bytes)
        #expect(rules.offset(at: try #require(Timestamp(rfc3339: "2037-07-01T00:00:00Z"))) >= 3_600)
    }

    /// A file with flipped bytes or a truncated file is refused or parsed, but never crashes.
    @Test("a damaged file never crashes") func damage() throws {
        let whole = try Self.berlin()
        var random = SeededGenerator(seed: 42)
        var refused = 0
        for round in 0..<4_000 {
            var bytes = whole
            if round % 4 == 0 { bytes.removeLast(Int.random(in: 0...whole.count, using: &random)) }
            for _ in 0..<(round % 5) where !bytes.isEmpty {
                // Most changes hit the counts and the footer.
                let place = [0..<44, 0..<bytes.count, (bytes.count - 30)..<bytes.count][round % 3]
                let index = max(0, min(bytes.count - 1, Int.random(in: place, using: &random)))
                bytes[index] = UInt8.random(in: 0...255, using: &random)
            }
            do throws(ZoneFault) {
                let rules = try ZoneRules(bytes)
                for seconds in [Int64.min / 1_000_000, -5_000_000_000, 0, 1_700_000_000, 1 << 40] {
                    let local = rules.local(at: Timestamp(seconds: seconds))
                    _ = rules.instant(local.date, minutes: local.seconds / 60)
                }
            } catch {
                refused += 1
            }
        }
        #expect(refused > 500)
    }

    private static func berlin() throws -> [UInt8] {
        Array(try Data(contentsOf: URL(filePath: "/usr/share/zoneinfo/Europe/Berlin")))
    }
}
