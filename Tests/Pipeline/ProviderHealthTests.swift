// Carillon · ProviderHealthTests.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Model
import Providers
import Testing

@testable import Pipeline

struct ProviderHealthTests {
    private static let now = Timestamp(seconds: 1_000)

    private static func fail(_ health: ProviderHealth, _ service: String?, times: Int = 10) {
        let reply = ProviderReply(.unanswered(reason: "timeout", mayHaveBeenSent: true))
        for _ in 0..<times where health.admit("app", service: service, isShared: false, now: self.now) == .yes {
            health.note(reply, app: "app", service: service, now: self.now)
        }
    }

    private static func isHeld(_ health: ProviderHealth, _ service: String?) -> Bool {
        guard health.admit("app", service: service, isShared: false, now: self.now) == .yes else { return true }
        health.withdraw("app", service: service)
        return false
    }

    @Test("a service that fails holds up no other")
    func services() {
        let health = ProviderHealth(.webpush, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        Self.fail(health, "https://bad.example")
        #expect(Self.isHeld(health, "https://bad.example"))
        #expect(!Self.isHeld(health, "https://good.example"))
        #expect(!Self.isHeld(health, nil))
    }

    @Test("however many services there are, those that work are not remembered for ever")
    func bound() {
        let health = ProviderHealth(.webpush, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        Self.fail(health, "https://bad.example")
        for number in 0..<5_000 { #expect(!Self.isHeld(health, "https://\(number).example")) }
        #expect(health.states.count <= 1_000)
        #expect(Self.isHeld(health, "https://bad.example"))
    }
}
