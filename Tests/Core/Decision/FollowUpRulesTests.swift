// Carillon · FollowUpRulesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Decision: follow-ups", .timeLimit(.minutes(10)))
struct FollowUpRulesTests {
    private static func notification(
        _ channels: Channels,
        _ status: NotificationStatus,
        reason: String? = nil
    ) -> Notification {
        Facts.notification {
            $0.channels = channels
            $0.status = status
            $0.statusReason = reason
        }
    }

    @Test("a release is over once a dispatcher has handled it and no push is to follow")
    func over() {
        let table: [(status: NotificationStatus, reason: String?, isOver: Bool)] = [
            (.deferred, "quiet_hours", false),
            (.sent, "capped_by_type", true),
            (.sent, nil, false),
            (.suppressed, "opted_out", true),
            (.pending, "queued", false),
            (.pending, "quiet_hours", true),
            (.failed, "no_device", true),
            (.failed, "unregistered", false),
            (.delivered, nil, false),
        ]
        for row in table {
            let notification = Self.notification([.push, .email], row.status, reason: row.reason)
            #expect(FollowUp.release.isOver(notification) == row.isOver, "\(row)")
            #expect(FollowUp.release.wasReleased(notification) == (row.reason == "queued"), "\(row)")
            for kind in [FollowUp.attention, .email] {
                #expect(!kind.isOver(notification))
                #expect(!kind.wasReleased(notification))
            }
        }
    }

    @Test("a refused release ends a deferred notification in the inbox, with its mail, or alone")
    func refusedRelease() {
        func end(_ channels: Channels, _ refusal: GateRefusal) -> RefusedFollowUp {
            FollowUp.release.refused(refusal, Self.notification(channels, .deferred))
        }
        #expect(end([.inApp, .push], .read) == .settle(.sent))
        #expect(end([.inApp, .push, .email], .optedOut) == .settle(.sent))
        #expect(end([.inApp, .push], .expired) == .settle(.expired))
        #expect(end([.push], .optedOut) == .settle(.suppressed))
        #expect(end([.push, .email], .optedOut) == .settleWithMail(otherwise: .suppressed))
        #expect(end([.push, .email], .expired) == .settleWithMail(otherwise: .expired))
        for refusal in [GateRefusal.deleted, .replaced] {
            #expect(end([.push, .email], refusal) == .settle(.suppressed))
        }
        for status in NotificationStatus.allCases where status != .deferred {
            let notification = Self.notification([.push, .email], status)
            #expect(FollowUp.release.refused(.read, notification) == .ignore)
        }
    }

    @Test("refused mail ends a notification that has no other channel, and else is recorded if it matters")
    func refusedMail() {
        func end(_ channels: Channels, _ refusal: GateRefusal, reason: String? = nil) -> RefusedFollowUp {
            FollowUp.email.refused(refusal, Self.notification(channels, .pending, reason: reason))
        }
        #expect(end([.email], .optedOut) == .settle(.suppressed))
        #expect(end([.push, .email], .expired, reason: "unread") == .settle(.expired))
        #expect(end([.push, .email], .read, reason: "queued") == .skipMail)
        #expect(end([.inApp, .email], .read) == .ignore)
        #expect(end([.inApp, .email], .deleted) == .ignore)
        #expect(end([.inApp, .email], .optedOut) == .skipMail)
        #expect(end([.inApp, .push, .email], .read, reason: "queued") == .skipMail)
        #expect(FollowUp.email.refused(.cancelled, Self.notification([.email], .cancelled)) == .skipMail)
    }

    @Test("a refused attention call changes nothing")
    func refusedAttention() {
        for status in NotificationStatus.allCases {
            #expect(FollowUp.attention.refused(.read, Self.notification([.push], status)) == .ignore)
        }
    }
}
