// Carillon · TimestampTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Timestamps", .timeLimit(.minutes(10)))
struct TimestampTests {
    @Test(
        "parses RFC 3339 to the microsecond",
        arguments: [
            ("1970-01-01T00:00:00Z", 0), ("1970-01-01T00:00:00.000001Z", 1), ("1969-12-31T23:59:59.999999Z", -1),
            ("1969-12-31T23:59:59Z", -1_000_000), ("2026-11-20T10:00:00Z", 1_795_168_800_000_000),
            ("2026-11-20t10:00:00z", 1_795_168_800_000_000), ("2026-11-20 10:00:00Z", 1_795_168_800_000_000),
            ("2026-11-20T10:00:00+02:00", 1_795_161_600_000_000), ("2026-11-20T10:00:00-02:30", 1_795_177_800_000_000),
            ("2026-11-20T10:00:00+00:00", 1_795_168_800_000_000), ("2026-11-20T10:00:00-00:00", 1_795_168_800_000_000),
            ("2026-11-20T10:00:00.5Z", 1_795_168_800_500_000),
            ("2026-11-20T10:00:00.123456789Z", 1_795_168_800_123_456),
            ("2026-11-20T10:00:00.25+01:00", 1_795_165_200_250_000), ("2000-02-29T00:00:00Z", 951_782_400_000_000),
            ("2024-02-29T12:00:00Z", 1_709_208_000_000_000), ("2024-03-01T00:00:00Z", 1_709_251_200_000_000),
            ("1900-03-01T00:00:00Z", -2_203_891_200_000_000), ("1900-02-28T23:59:59Z", -2_203_891_201_000_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000_000), ("1999-12-31T23:59:60Z", 946_684_800_000_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000_000), ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
        ]
    )
    func reads(text: String, microseconds: Int64) {
        #expect(Timestamp(rfc3339: text)?.microseconds == microseconds)
        #expect(Timestamp(rfc3339: text[...])?.microseconds == microseconds)
    }

    @Test("clamps to the first and last moment without trapping")
    func extremes() {
        let (first, last) = (Timestamp(microseconds: .min), Timestamp(microseconds: .max))
        #expect(Timestamp(milliseconds: .max) == last && Timestamp(milliseconds: .min) == first)
        #expect(Timestamp(seconds: .max) == last && Timestamp(seconds: .min) == first)
        #expect(last + .seconds(1) == last && first + .seconds(-1) == first)
        #expect(Timestamp(seconds: 0) + .seconds(Int64.max) == last)
        #expect(Timestamp(seconds: 0) + .seconds(Int64.min) == first)
        #expect(last - first > .seconds(1) && first - last < .zero)
        #expect((last - Timestamp(seconds: 0)).inMicroseconds == .max)
        #expect(Timestamp(milliseconds: -1_500).microseconds == -1_500_000)
        #expect(first - .seconds(1) == first && last - .seconds(-1) == last)
        #expect(Timestamp(seconds: 0) - .seconds(Int64.min) == last)
    }

    @Test(
        "refuses texts that are not RFC 3339",
        arguments: [
            "", "2026", "2026-11-20", "10:00:00Z", "2026-11-20T10:00:00", "2026-11-20T10:00Z", "2026-11-20T10:00:00z+",
            "2026-11-20T10:00:00 Z", "2026-11-20T10:00:00Z ", " 2026-11-20T10:00:00Z", "2026-11-20X10:00:00Z",
            "2026-00-20T10:00:00Z", "2026-13-20T10:00:00Z", "2026-11-00T10:00:00Z", "2026-11-31T10:00:00Z",
            "2026-02-29T10:00:00Z", "1900-02-29T10:00:00Z", "2100-02-29T10:00:00Z", "2024-02-30T10:00:00Z",
            "2026-11-20T24:00:00Z", "2026-11-20T10:60:00Z", "2026-11-20T10:00:61Z", "2026-11-20T10:00:00.Z",
            "2026-11-20T10:00:00,5Z", "2026-11-20T10:00:00+2:00", "2026-11-20T10:00:00+0200",
            "2026-11-20T10:00:00+24:00",
            "2026-11-20T10:00:00+02:60", "2026-11-20T10:00:00+02", "26-11-20T10:00:00Z", "02026-11-20T10:00:00Z",
            "2026-1-20T10:00:00Z", "+026-11-20T10:00:00Z", "-2026-11-20T10:00:00Z", "2026-11-20T10:00:0٠Z", "now",
            "1795168800", "2026-W47-5T10:00:00Z", "２０２６-11-20T10:00:00Z",
        ]
    )
    func refuses(text: String) {
        #expect(Timestamp(rfc3339: text) == nil)
    }

    @Test("refuses a time that its offset moves out of the years 0 to 9999")
    func refusesOutOfRange() {
        #expect(Timestamp(rfc3339: "0000-01-01T00:00:00+00:01") == nil)
        #expect(Timestamp(rfc3339: "9999-12-31T23:59:59-00:01") == nil)
        #expect(Timestamp(rfc3339: "0000-01-01T00:00:00Z")?.rfc3339 == "0000-01-01T00:00:00.000Z")
        #expect(Timestamp(rfc3339: "9999-12-31T23:59:59.999Z")?.rfc3339 == "9999-12-31T23:59:59.999Z")
    }

    @Test("clamps output to the years 0 to 9999", arguments: [-1, 1])
    func writesOutOfRange(sign: Int64) {
        let expected = sign < 0 ? "0000-01-01T00:00:00.000Z" : "9999-12-31T23:59:59.999Z"
        #expect(Timestamp(microseconds: sign * Int64.max).rfc3339 == expected)
    }

    @Test(
        "writes RFC 3339 in UTC with milliseconds",
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"),
            (-86_400_000, "1969-12-31T00:00:00.000Z"),
            (1_795_168_800_005, "2026-11-20T10:00:00.005Z"), (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"), (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (-2_203_891_200_000, "1900-03-01T00:00:00.000Z"), (-2_203_891_200_001, "1900-02-28T23:59:59.999Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"), (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ]
    )
    func writes(milliseconds: Int64, text: String) {
        #expect(Timestamp(milliseconds: milliseconds).rfc3339 == text)
    }

    @Test("parses its own output across eight centuries")
    func roundTrips() {
        for step in Int64(-4_000)...4_000 {
            let moment = Timestamp(milliseconds: step * 3_155_760_123 + 17)
            #expect(Timestamp(rfc3339: moment.rfc3339) == moment)
        }
    }

    @Test("converts units and calculates")
    func arithmetic() {
        let moment = Timestamp(seconds: 10)
        #expect(moment == Timestamp(milliseconds: 10_000))
        #expect(moment.seconds == 10)
        #expect(moment.milliseconds == 10_000)
        #expect((moment + .milliseconds(-1)).microseconds == 9_999_000)
        #expect(moment + .microseconds(1) > moment)
        #expect(moment - Timestamp(seconds: 12) == .seconds(-2))
        #expect(Duration.milliseconds(1_500).inMicroseconds == 1_500_000)
        #expect(moment - .milliseconds(1) == Timestamp(milliseconds: 9_999))
        #expect(Duration.nanoseconds(1_999).inMicroseconds == 1)
        #expect(Duration.microseconds(1_999).inMilliseconds == 1)
        #expect(Duration(written: "90s") == .seconds(90) && Duration(written: "30d") == .seconds(2_592_000))
        for text in ["", "s", "5", "0s", "-1h", "1.5h", "1 h", "1w", "31536001d"] {
            #expect(Duration(written: text) == nil, "\(text)")
        }
        #expect(Duration.seconds(5).inMilliseconds == 5_000 && Duration.milliseconds(-1_500).inMilliseconds == -1_500)
    }
}
