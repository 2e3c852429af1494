// Carillon · Stack+Time.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support

extension Stack {
    /// Makes everything stored ten minutes older, so that the sweeper may hand it on again.
    func age() async throws {
        for statement in [
            "UPDATE carillon.notifications SET stored_at = stored_at - interval '10 minutes'",
            "UPDATE carillon.sweep SET swept_until = swept_until - interval '20 minutes'",
        ] {
            // The update locks rows in another order than dispatchers do and may lose a deadlock.
            try await eventually("time has passed") {
                do {
                    _ = try await self.query(statement)
                    return true
                } catch let error as PostgresError where error.sqlState == "40P01" {
                    return false
                }
            }
        }
    }

    /// Waits until the sweep has passed everything stored.
    func waitForSweep() async throws {
        try await eventually("the sweeper has passed") {
            try await self.query(
                "SELECT 1 FROM carillon.notifications n, carillon.sweep s WHERE n.stored_at > s.swept_until"
            ).isEmpty
        }
    }

    /// Ends the windows of all digests.
    func closeDigests() async throws {
        try await self.query("UPDATE carillon.digests SET due_at = now()")
    }

    /// Makes a user's only socket idle, and has been for 90 seconds.
    func leaveIdle(_ socket: TestSocket, user: String) async throws {
        try await socket.send(json: #"{"type":"focus","active":false,"ref":1}"#)
        _ = try await socket.first("done")
        let key = RedisArgument.text("carillon:presence:{\(user)}")
        try await eventually("the connection is idle") {
            let fields = try await self.connection.send("HGETALL", key).strings()
            guard fields.count == 2 else { return false }
            var parts = fields[1].split(separator: " ").map(String.init)
            guard parts.count == 6, parts[3] == "idle", let since = Int64(parts[5]) else { return false }
            parts[5] = "\(since - 90_000)"
            let text = parts.joined(separator: " ")
            try await self.connection.send("HSET", key, .text(fields[0]), .text(text))
            return true
        }
    }

    /// Waits until no FCM delivery waits.
    func waitForPushes() async throws {
        try await eventually("nothing waits for a provider") {
            for lane in Lane.allCases {
                let stream = RedisArgument.text("carillon:{fcm}:deliveries:\(lane.rawValue)")
                if try await self.connection.send("XLEN", stream).integer() > 0 { return false }
            }
            return true
        }
    }
}

/// Quiet hours from an hour ago to an hour from now.
enum QuietNow {
    /// Settings with these quiet hours in UTC.
    static let settings = Self.settings(zone: "UTC")

    /// Settings with the same clock times in another zone.
    static func settings(zone: String) -> String {
        let minute = Int(Date.now.timeIntervalSince1970) / 60 % 1_440
        func clock(_ minutes: Int) -> String {
            LocalTime(minutes: (minutes + 1_440) % 1_440)?.description ?? ""
        }
        return #"""
            {"zone":"\#(zone)","quiet_hours":{"start":"\#(clock(minute - 60))","end":"\#(clock(minute + 60))"}}
            """#
    }

    /// Settings without quiet hours.
    static let over = #"{"quiet_hours":null}"#
}

extension Gateway {
    /// Changes a user's settings.
    func set(_ settings: String, of user: String) async throws {
        let answer = try await self.call(
            .put, "/v1/settings", token: try await Stack.token(user: user), json: settings)
        guard answer.status == 200 else { throw FixtureError("settings not changed: \(answer.status)") }
    }
}
