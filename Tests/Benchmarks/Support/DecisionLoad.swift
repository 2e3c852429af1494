// Carillon · DecisionLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Crypto
import Foundation

/// The pure rules in a loop, on one thread.
struct DecisionLoad {
    /// Which facts are decided about.
    enum Kind: String, CaseIterable {
        case arrived, offline, online
        /// Within quiet hours of a zone that changes its clocks.
        case quiet
    }

    private static let now = Timestamp(seconds: 1_795_168_800)

    let count: Int

    /// Microseconds that one decision takes.
    func microseconds(_ kind: Kind) throws -> Double {
        // As many as a batch has, so that no decision finds its facts in the registers of the one before.
        let facts = try (0..<256).map { try Self.facts(kind, $0) }
        var steps = 0
        let start = ContinuousClock.now
        for index in 0..<self.count { steps += decide(facts[index & 255]).count }
        let elapsed = ContinuousClock.now - start
        guard steps >= self.count else { throw ValidationError("\(kind.rawValue): too few steps were decided") }
        return elapsed.inSeconds * 1_000_000 / Double(self.count)
    }

    /// Microseconds that the hash of a job's bytes takes on this machine, to compare with.
    func hashMicroseconds() -> Double {
        let bytes = Data(repeating: 0x61, count: 256)
        let start = ContinuousClock.now
        for _ in 0..<self.count { Self.use(SHA256.hash(data: bytes)) }
        let elapsed = ContinuousClock.now - start
        return elapsed.inSeconds * 1_000_000 / Double(self.count)
    }

    /// Keeps a value from being left out as nobody needs it.
    @inline(never)
    private static func use<Value>(_ value: Value) {}

    private static func facts(_ kind: Kind, _ number: Int) throws -> DecisionFacts {
        var notification = Notification(
            id: NotificationID(high: 1, low: UInt64(number)), user: "user-\(number)", type: "payment_received",
            createdAt: self.now)
        notification.delivery = .push
        notification.channels = kind == .arrived ? .all : [.inApp, .push]
        notification.expiresAt = self.now + .seconds(60)
        var facts = DecisionFacts(
            notification: notification,
            type: NotificationType(name: "payment_received"),
            progress: kind == .arrived ? .arrived : .stored,
            now: self.now
        )
        facts.deviceCount = 1
        facts.presence = .offline
        if kind == .online {
            facts.presence = .online([
                ConnectionPresence(
                    connection: "c\(number)", node: "n", dialect: .native, state: .active, since: self.now)
            ])
        }
        if kind == .quiet {
            let zones = ZoneDatabase()
            guard let zone = zones.rules("Europe/Berlin") else {
                throw ValidationError("the machine has no time-zone data")
            }
            facts.zone = zone
            let minute = zone.local(at: self.now).seconds / 60
            facts.settings.quietHours = QuietHours(
                start: (minute + 1_380) % 1_440, end: (minute + 60) % 1_440)
        }
        return facts
    }
}
