// Carillon · LocalDeliveryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Core

@Suite struct LocalDeliveryTests {
    private static let zones = SystemZones()

    private static func parts(
        _ users: [(String, String?)],
        _ wall: String,
        now: String,
        lateness: Duration? = nil
    ) throws -> LocalDelivery {
        LocalDelivery(
            users.map { ($0.0, $0.1) },
            at: try #require(WallTime(wall)),
            now: try #require(Timestamp(rfc3339: now)),
            defaultZone: "Europe/Berlin",
            lateness: lateness,
            rules: { Self.zones.rules($0) }
        )
    }

    private static func summary(_ delivery: LocalDelivery) -> [String] {
        delivery.parts.map { "\($0.zone) \($0.at.rfc3339.prefix(16)) \($0.users.joined(separator: ","))" }
    }

    @Test("each zone has its own moment, today or tomorrow")
    func zones() throws {
        let users: [(String, String?)] = [
            ("tokyo", "Asia/Tokyo"), ("york", "America/New_York"), ("none", nil), ("berlin", "Europe/Berlin"),
            ("tokyo2", "Asia/Tokyo"), ("lost", "Mars/Olympus"), ("apia", "Pacific/Apia"),
        ]
        let delivery = try Self.parts(users, "08:30", now: "2026-11-20T12:00:00Z")
        #expect(
            Self.summary(delivery) == [
                "America/New_York 2026-11-20T13:30 york",
                "Asia/Tokyo 2026-11-20T23:30 tokyo,tokyo2",
                "Europe/Berlin 2026-11-21T07:30 none,berlin,lost",
                "Pacific/Apia 2026-11-20T19:30 apia",
            ])
        #expect(delivery.unknownZones == 1)
        #expect(delivery.parts[3].wall.description == "2026-11-21T08:30")
    }

    @Test("the minute itself is today; a moment later it is tomorrow")
    func edge() throws {
        #expect(
            Self.summary(try Self.parts([("u", "UTC")], "12:00", now: "2026-11-20T12:00:00Z"))
                == ["UTC 2026-11-20T12:00 u"])
        #expect(
            Self.summary(try Self.parts([("u", "UTC")], "12:00", now: "2026-11-20T12:00:00.001Z"))
                == ["UTC 2026-11-21T12:00 u"])
    }

    @Test("a given day is kept, even in a gap")
    func day() throws {
        let users: [(String, String?)] = [("berlin", nil), ("utc", "UTC")]
        let delivery = try Self.parts(users, "2027-03-28T02:30", now: "2026-11-20T12:00:00Z")
        #expect(Self.summary(delivery) == ["Europe/Berlin 2027-03-28T01:00 berlin", "UTC 2027-03-28T02:30 utc"])
    }

    @Test("users whose time passed too long ago are left out; without a limit it is due at once")
    func late() throws {
        let users: [(String, String?)] = [("tokyo", "Asia/Tokyo"), ("berlin", nil), ("york", "America/New_York")]
        let delivery = try Self.parts(
            users, "2026-11-20T09:00", now: "2026-11-20T08:30:00Z", lateness: .seconds(3_600))
        #expect(
            Self.summary(delivery) == [
                "America/New_York 2026-11-20T14:00 york", "Europe/Berlin 2026-11-20T08:00 berlin",
            ])
        #expect(delivery.late == 1)
        #expect(try Self.parts(users, "2026-11-20T09:00", now: "2026-11-20T08:30:00Z").parts.count == 3)
    }
}
