// Carillon · RoutingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Decision: routing", .timeLimit(.minutes(10)))
struct RoutingTests {
    private static let online = Presence.online([Facts.connection])
    private static let expired = [Step.settle(status: .expired, reason: .expired, via: nil)]
    private static let mail = [Step.email(isOnlyChannel: false)]
    private static let proof = [Step.publish(isSilent: false), .awaitProof(within: .seconds(5))]

    private typealias Row = (channels: Channels, presence: Presence, devices: Int, steps: [Step])

    /// The last resort.
    private static func inbox(_ reason: Reason) -> [Step] { [.settle(status: .sent, reason: reason, via: .inbox)] }
    private static func failed(_ reason: Reason) -> [Step] { [.settle(status: .failed, reason: reason, via: nil)] }

    @Test("stored notifications go to sockets, else to push, else to the inbox")
    func stored() {
        let table: [Row] = [
            ([.inApp, .push], Self.online, 1, Self.proof),
            ([.inApp, .push], Self.online, 0, Self.proof),
            ([.inApp], Self.online, 1, [.publish(isSilent: false)]),
            ([.push], Self.online, 1, [.push]),
            ([.push], Self.online, 0, Self.failed(.noDevice)),
            ([.email], Self.online, 1, [.email(isOnlyChannel: true)]),
            ([.inApp, .email], Self.online, 1, [.publish(isSilent: false), Self.settled(.unproven)] + Self.mail),
            ([.inApp, .email], .offline, 1, Self.inbox(.offline) + Self.mail),
            ([.inApp, .push], .offline, 1, [.push]),
            ([.inApp, .push], .offline, 3, [.push]),
            ([.inApp, .push], .offline, 0, Self.inbox(.noDevice)),
            ([.inApp], .offline, 1, Self.inbox(.offline)),
            ([.push], .offline, 1, [.push]),
            ([.push], .offline, 0, Self.failed(.noDevice)),
            ([.email], .offline, 1, [.email(isOnlyChannel: true)]),
            ([.push, .email], .offline, 0, [.email(isOnlyChannel: true)]),
            ([.push, .email], .offline, 1, [.push] + Self.mail),
            ([.inApp, .push], .unknown, 1, [.push]),
            ([.inApp, .push], .unknown, 0, Self.inbox(.noDevice)),
            ([.push], .unknown, 1, [.push]),
            ([.inApp], .unknown, 1, [.wait(.presenceUnknown)]),
            ([.email], .unknown, 1, [.wait(.presenceUnknown)]),
        ]
        for row in table {
            let facts = Facts.make(.stored) {
                $0.notification.channels = row.channels
                $0.presence = row.presence
                $0.deviceCount = row.devices
            }
            #expect(decide(facts) == row.steps, "\(row)")
        }
    }

    @Test("an unproven notification falls back to push, whatever the presence is now")
    func unproven() {
        for presence in [Presence.unknown, .offline, Self.online] {
            let table: [(channels: Channels, devices: Int, steps: [Step])] = [
                ([.inApp, .push], 1, [.push]),
                ([.inApp, .push], 0, Self.inbox(.noDevice)),
                ([.inApp], 1, Self.inbox(.offline)),
                ([.push], 1, [.push]),
                ([.push], 0, Self.failed(.noDevice)),
            ]
            for row in table {
                let facts = Facts.make(.unproven) {
                    $0.notification.channels = row.channels
                    $0.presence = presence
                    $0.deviceCount = row.devices
                }
                #expect(decide(facts) == row.steps, "\(row) \(presence)")
            }
        }
    }

    private static func settled(_ reason: Reason) -> Step {
        .settle(status: .sent, reason: reason, via: .socket)
    }

    @Test("notifications without push settle when no proof can come, none came or they have mail; others wait")
    func unprovable() {
        let stream = ConnectionPresence(
            connection: "c2", node: "n1", dialect: .sse, state: .active, since: Facts.now)
        let table: [(presence: Presence, isRepeat: Bool, isSettled: Bool)] = [
            (.online([stream]), false, true),
            (.online([stream, Facts.connection]), false, false),
            (Self.online, false, false),
            (Self.online, true, true),
        ]
        for row in table {
            for channels in [[.inApp], [.inApp, .email]] as [Channels] {
                let facts = Facts.make(.stored) {
                    $0.notification.channels = channels
                    $0.presence = row.presence
                    $0.isRepeat = row.isRepeat
                }
                let hasMail = channels.contains(.email)
                let settled = row.isSettled || hasMail ? [Self.settled(.unproven)] : []
                let mail = hasMail ? Self.mail : []
                #expect(decide(facts) == [.publish(isSilent: false)] + settled + mail, "\(row) \(channels)")
            }
        }
        // An interrupting notification waits for its proof, and falls back to push without one.
        for presence in [Presence.online([stream]), Self.online] {
            let facts = Facts.make(.stored) {
                $0.presence = presence
                $0.isRepeat = true
            }
            #expect(decide(facts) == Self.proof)
        }
    }

    @Test("mail that cannot go out and devices that no provider serves are recorded")
    func obstacles() {
        func steps(_ change: (inout DecisionFacts) -> Void) -> [Step] {
            decide(
                Facts.make(.stored) {
                    $0.notification.channels = [.push, .email]
                    $0.deviceCount = 0
                    change(&$0)
                })
        }
        #expect(
            steps { $0.hasUnservedDevice = true } == [.email(isOnlyChannel: true), .skipUnserved])
        #expect(steps { $0.settings.email = nil } == [.skipEmail(reason: .noAddress, isOnlyChannel: true)])
        #expect(steps { $0.hasMailRelay = false } == [.skipEmail(reason: .noProvider, isOnlyChannel: true)])
        let pushed = steps {
            $0.deviceCount = 1
            $0.hasMailRelay = false
        }
        #expect(pushed == [.push, .skipEmail(reason: .noProvider, isOnlyChannel: false)])
        #expect(
            steps { $0.type.emailDelay = .seconds(1) }
                == [.postpone(.email, until: Facts.now + .seconds(1), reason: .unread, isOnlyChannel: true)])
    }

    @Test("mail that is due is the only channel outside the inbox, unless a push waits for its provider")
    func dueMail() {
        let table: [(channels: Channels, status: NotificationStatus, isQueued: Bool, isOnlyChannel: Bool)] = [
            ([.inApp, .email], .pending, false, false),
            ([.email], .pending, false, true),
            ([.email], .pending, true, true),
            ([.push, .email], .pending, false, true),
            ([.push, .email], .pending, true, false),
            ([.push, .email], .sent, false, false),
        ]
        for row in table {
            let facts = Facts.make(.due(.email)) {
                $0.notification.channels = row.channels
                $0.notification.status = row.status
                $0.notification.isQueued = row.isQueued
            }
            #expect(decide(facts) == [.email(isOnlyChannel: row.isOnlyChannel)], "\(row)")
        }
    }

    @Test("an expired notification goes nowhere", arguments: [DecisionFacts.Progress.stored, .unproven])
    func expiry(progress: DecisionFacts.Progress) {
        for presence in [Presence.unknown, .offline, Self.online] {
            let facts = Facts.make(progress) {
                $0.notification.endsAt = Facts.now
                $0.presence = presence
            }
            #expect(decide(facts) == Self.expired)
        }
        let facts = Facts.make(progress) { $0.notification.endsAt = Facts.now + .microseconds(1) }
        #expect(decide(facts) == [.push])
    }

    @Test("recorded reasons are stable")
    func reasons() {
        #expect(
            Reason.allCases.map(\.rawValue) == [
                "expired", "type_disabled", "opted_out", "not_opted_in", "opted_out_of_type", "no_channel", "offline",
                "presence_unknown", "no_device", "quiet_hours", "idle", "unread", "capped_by_user", "capped_by_type",
                "capped_by_category", "unproven", "push_when_online",
            ]
        )
        #expect(
            RecordedReason.allCases.map(\.rawValue) == [
                "queued", "in_flight", "cancelled_too_late", "opened", "digest", "summarised", "no_provider",
                "no_address", "dispatchers_died", "out_of_use", "rate", "no_turn",
            ]
        )
    }
}
