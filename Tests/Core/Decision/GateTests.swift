// Carillon · GateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Gate", .timeLimit(.minutes(10)))
struct GateTests {
    private static func facts(_ change: (inout GateFacts) -> Void = { _ in }) -> GateFacts {
        var facts = GateFacts(
            status: .pending,
            isRead: false,
            isDeleted: false,
            isReplaced: false,
            expiresAt: nil,
            isDeviceActive: true,
            isOptedOut: false,
            isRequired: false,
            wasAccepted: false
        )
        change(&facts)
        return facts
    }

    private static func refusal(_ change: (inout GateFacts) -> Void) -> GateRefusal? {
        gate(Self.facts(change), now: Facts.now)
    }

    @Test(
        "the status opens or closes the gate",
        arguments: [
            (NotificationStatus.pending, nil), (.sent, nil), (.failed, nil), (.suppressed, nil), (.deferred, nil),
            (.delivered, .alreadyDelivered), (.cancelled, .cancelled), (.expired, .expired),
        ] as [(NotificationStatus, GateRefusal?)]
    )
    func status(status: NotificationStatus, refusal: GateRefusal?) {
        #expect(Self.refusal { $0.status = status } == refusal)
    }

    @Test("each fact alone closes the gate")
    func alone() {
        #expect(Self.refusal { _ in } == nil)
        #expect(Self.refusal { $0.isRead = true } == .read)
        #expect(Self.refusal { $0.isDeleted = true } == .deleted)
        #expect(Self.refusal { $0.isReplaced = true } == .replaced)
        #expect(Self.refusal { $0.isDeviceActive = false } == .deviceInactive)
        #expect(Self.refusal { $0.wasAccepted = true } == .alreadyAccepted)
        #expect(Self.refusal { $0.isOptedOut = true } == .optedOut)
        #expect(Self.refusal { $0.isTypeDisabled = true } == .typeDisabled)
    }

    @Test("attention pushes and e-mail go out although a socket has the notification, unless it was read")
    func purposes() {
        for purpose in [GateFacts.Purpose.attention, .email] {
            #expect(
                Self.refusal {
                    $0.purpose = purpose
                    $0.status = .delivered
                } == nil
            )
            #expect(
                Self.refusal {
                    $0.purpose = purpose
                    $0.status = .delivered
                    $0.isRead = true
                } == .read
            )
        }
    }

    @Test("a read or deleted notification is retracted from an active device, unless a newer one replaced it there")
    func retraction() {
        func refusal(_ change: (inout GateFacts) -> Void) -> GateRefusal? {
            Self.refusal {
                $0.purpose = .retraction
                $0.wasAccepted = true
                change(&$0)
            }
        }
        #expect(refusal { $0.isRead = true } == nil)
        #expect(refusal { $0.isDeleted = true } == nil)
        #expect(refusal { _ in } == .unread)
        #expect(
            refusal {
                $0.isRead = true
                $0.isDeviceActive = false
            } == .deviceInactive
        )
        // A replaced notification counts as deleted.
        #expect(
            refusal {
                $0.isRead = true
                $0.isDeleted = true
                $0.isReplaced = true
            } == .replaced
        )
    }

    @Test(
        "without a preference the type's default decides, as it did when the notification was stored",
        arguments: [
            (true, nil, nil), (false, nil, .optedOut), (false, true, nil), (true, false, .optedOut),
        ] as [(Bool, Bool?, GateRefusal?)]
    )
    func defaults(isOnByDefault: Bool, preference: Bool?, refusal: GateRefusal?) {
        let facts = Facts.make(.stored) {
            $0.type.isOnByDefault = isOnByDefault
            $0.type.emailDelay = .seconds(60)
            $0.preference.push = preference
            $0.preference.email = preference
        }
        for purpose in [GateFacts.Purpose.reach, .attention, .email] {
            let gateFacts = GateFacts(
                purpose, of: Facts.notification(), type: facts.type, preference: facts.preference,
                settings: facts.settings, isReplaced: false)
            #expect(gate(gateFacts, now: Facts.now) == refusal)
        }
    }

    @Test("a disabled type closes the gate, also if it is required", arguments: [false, true])
    func disabled(isRequired: Bool) {
        let facts = Facts.make(.stored) {
            $0.type.isEnabled = false
            $0.type.isRequired = isRequired
        }
        for purpose in [GateFacts.Purpose.reach, .attention, .email] {
            let gateFacts = GateFacts(
                purpose, of: Facts.notification(), type: facts.type, preference: facts.preference,
                settings: facts.settings, isReplaced: false)
            #expect(gate(gateFacts, now: Facts.now) == .typeDisabled)
        }
    }

    @Test("quiet hours close the gate, unless another reason is final")
    func quiet() {
        #expect(Self.refusal { $0.releaseAt = Facts.now + .seconds(60) } == .quietHours)
        #expect(
            Self.refusal {
                $0.releaseAt = Facts.now + .seconds(60)
                $0.isRead = true
            } == .read
        )
    }

    @Test(
        "quiet hours end the push of a type that is not pushed in them, but not its e-mail",
        arguments: [
            (QuietPolicy.defer, .quietHours), (.inAppOnly, .notInQuietHours), (.drop, .notInQuietHours),
            (.ignore, .quietHours),
        ] as [(QuietPolicy, GateRefusal)])
    func quietPolicy(policy: QuietPolicy, refusal: GateRefusal) {
        let facts = Facts.make(.stored) {
            $0.type.quietHours = policy
            $0.type.emailDelay = .seconds(60)
        }
        let expectations: [(GateFacts.Purpose, GateRefusal?)] = [
            (.reach, refusal), (.attention, refusal), (.email, nil),
        ]
        for (purpose, expected) in expectations {
            var gateFacts = GateFacts(
                purpose, of: Facts.notification(), type: facts.type, preference: facts.preference,
                settings: facts.settings, isReplaced: false)
            #expect(gate(gateFacts, now: Facts.now) == nil)
            if purpose != .email { gateFacts.releaseAt = Facts.now + .seconds(60) }
            #expect(gate(gateFacts, now: Facts.now) == expected)
        }
    }

    @Test("a user who opted out still gets required notifications on an active device")
    func required() {
        #expect(
            Self.refusal {
                $0.isOptedOut = true
                $0.isRequired = true
            } == nil
        )
        #expect(
            Self.refusal {
                $0.isRequired = true
                $0.isDeviceActive = false
            } == .deviceInactive
        )
    }

    @Test("the gate closes at the moment of expiry")
    func expiry() {
        #expect(Self.refusal { $0.expiresAt = Facts.now + .microseconds(1) } == nil)
        #expect(Self.refusal { $0.expiresAt = Facts.now } == .expired)
        #expect(Self.refusal { $0.expiresAt = Facts.now + .seconds(-1) } == .expired)
    }

    @Test(
        "the gate closes when a notification is no longer kept, for every purpose",
        arguments: [GateFacts.Purpose.reach, .attention, .email])
    func kept(purpose: GateFacts.Purpose) {
        for (offset, refusal) in [(0, GateRefusal.expired), (1, nil)] as [(Int64, GateRefusal?)] {
            let notification = Facts.notification { $0.keepUntil = Facts.now + .microseconds(offset) }
            let facts = Facts.make(.stored) { $0.type.emailDelay = .seconds(60) }
            let gateFacts = GateFacts(
                purpose, of: notification, type: facts.type, preference: facts.preference,
                settings: facts.settings, isReplaced: false)
            #expect(gate(gateFacts, now: Facts.now) == refusal)
        }
    }

    @Test("a notification that retention removed has expired; one that its user removed is deleted")
    func removed() {
        func refusal(deletedAt: Timestamp, keepUntil: Timestamp) -> GateRefusal? {
            let notification = Facts.notification {
                $0.deletedAt = deletedAt
                $0.keepUntil = keepUntil
            }
            let facts = Facts.make(.stored)
            let gateFacts = GateFacts(
                .reach, of: notification, type: facts.type, preference: facts.preference,
                settings: facts.settings, isReplaced: false)
            return gate(gateFacts, now: Facts.now)
        }
        let (before, after) = (Facts.now + .seconds(-1), Facts.now + .seconds(1))
        #expect(refusal(deletedAt: Facts.now, keepUntil: before) == .expired)
        #expect(refusal(deletedAt: Facts.now, keepUntil: Facts.now) == .expired)
        #expect(refusal(deletedAt: before, keepUntil: Facts.now) == .deleted)
        // An archived one, until then.
        #expect(refusal(deletedAt: after, keepUntil: after) == .deleted)
    }

    @Test("of several reasons, the final one is reported")
    func order() {
        #expect(
            Self.refusal {
                $0.wasAccepted = true
                $0.status = .cancelled
                $0.isRead = true
            } == .alreadyAccepted
        )
        #expect(
            Self.refusal {
                $0.status = .cancelled
                $0.isRead = true
                $0.isDeviceActive = false
            } == .cancelled
        )
    }

    @Test("recorded words are stable")
    func words() {
        #expect(
            GateRefusal.allCases.map(\.rawValue) == [
                "cancelled", "read", "deleted", "replaced", "expired", "unread", "type_disabled", "opted_out",
                "device_inactive", "already_delivered", "already_accepted", "under_way", "quiet_hours",
                "not_in_quiet_hours",
            ]
        )
    }
}
