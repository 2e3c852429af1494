// Carillon · ChannelFateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Decision: channel fates", .timeLimit(.minutes(10)))
struct ChannelFateTests {
    private static let sets: [Channels] = (0..<8).map { Channels(rawValue: $0) }
    private static let preferences: [Bool?] = [nil, false, true]

    private static func fates(isProven: Bool = true, _ change: (inout DecisionFacts) -> Void) -> [String] {
        let simulation = Simulation(Facts.make(.arrived, change), isProven: isProven)
        return simulation.fates(simulation.run()).map { "\($0.channel.rawValue) \($0.isUsed) \($0.reason)" }
    }

    @Test("a channel is excluded exactly where the rules leave it out, for every mix of job, type and preference")
    func exclusions() {
        for job in Self.sets {
            for type in Self.sets {
                for (index, inApp) in Self.preferences.enumerated() {
                    for push in Self.preferences {
                        for email in Self.preferences {
                            let facts = Facts.make(.arrived) {
                                $0.notification.channels = job
                                $0.type.channels = type
                                $0.type.isRequired = index == 1 && push == true
                                $0.type.isOnByDefault = email != false
                                $0.notification.delivery = push == nil && index == 2 ? .inApp : .push
                                $0.preference = TypePreference(inApp: inApp, push: push, email: email)
                            }
                            let stored = storing(facts)
                            guard stored.status == .pending else { continue }
                            for channel in DeliveryChannel.allCases {
                                #expect(
                                    (facts.exclusion(of: channel) == nil)
                                        == stored.channels.contains(Channels(channel)),
                                    "\(channel) of \(facts)")
                            }
                        }
                    }
                }
            }
        }
    }

    @Test("each channel reports when it is used, or why not")
    func reasons() {
        #expect(
            Self.fates { $0.type.channels = .all } == [
                "in_app true waits_in_inbox", "push true due", "email false not_asked_for",
            ])
        #expect(
            Self.fates { $0.presence = .online([Facts.connection]) } == [
                "in_app true online", "push false proven_by_socket", "email false not_of_type",
            ])
        #expect(
            Self.fates(isProven: false) { $0.presence = .online([Facts.connection]) }[1] == "push true due")
        let stream = ConnectionPresence(
            connection: "c2", node: "n1", dialect: .sse, state: .active, since: Facts.now)
        #expect(Self.fates { $0.presence = .online([stream]) }[1] == "push true due")
        #expect(Self.fates { $0.presence = .online([stream, Facts.connection]) }[1] == "push false proven_by_socket")
        #expect(Self.fates { $0.deviceCount = 0 }[1] == "push false no_device")
        #expect(
            Self.fates {
                $0.deviceCount = 0
                $0.presence = .online([Facts.connection])
            } == ["in_app true online", "push false no_device", "email false not_of_type"])
        #expect(
            Self.fates {
                $0.deviceCount = 0
                $0.type.channels = [.push, .email]
                $0.preference = TypePreference(inApp: nil, push: nil, email: true)
            } == ["in_app false not_of_type", "push false no_device", "email true due"])
        #expect(Self.fates { $0.cap = .type }[1] == "push false capped_by_type")
        #expect(
            Self.fates { $0.preference = TypePreference(inApp: nil, push: false, email: nil) }[1]
                == "push false refused")
        #expect(Self.fates { $0.notification.delivery = .inApp }[1] == "push false delivery_in_app")
        #expect(Self.fates { $0.notification.channels = [.push] }[0] == "in_app false not_of_job")
        #expect(
            Self.fates { $0.settings.isOptedOut = true } == [
                "in_app false opted_out", "push false opted_out", "email false not_of_type",
            ])
    }

    @Test("a postponed channel reports until when, and why")
    func postponed() throws {
        let facts = Facts.make(.arrived) {
            $0.type.channels = .all
            $0.type.emailDelay = .seconds(30)
            $0.preference = TypePreference(inApp: nil, push: nil, email: true)
        }
        let simulation = Simulation(facts, isProven: true)
        let mail = try #require(simulation.fates(simulation.run()).last)
        #expect(mail.isUsed)
        #expect(mail.reason == "unread")
        #expect(mail.at == Facts.now + .seconds(30))
        var unreachable = facts
        unreachable.settings.email = nil
        let hindered = Simulation(unreachable, isProven: true)
        let events = hindered.run()
        #expect(hindered.fates(events).last == ChannelFate(.email, isUsed: false, reason: "no_address"))
        #expect(events.map(\.step).last == .postpone(.email, until: Facts.now + .seconds(30), reason: .unread))
        var late = facts
        late.type.emailDelay = .seconds(3_600)
        let expiring = Simulation(late, isProven: true)
        #expect(expiring.fates(expiring.run()).last == ChannelFate(.email, isUsed: false, reason: "expired"))
    }
}
