// Carillon · GateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

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
        "The status opens or shuts it",
        arguments: [
            (NotificationStatus.pending, nil), (.sent, nil), (.failed, nil), (.suppressed, nil), (.deferred, nil),
            (.delivered, .alreadyDelivered), (.cancelled, .cancelled), (.expired, .expired),
        ] as [(NotificationStatus, GateRefusal?)]
    )
    func status(status: NotificationStatus, refusal: GateRefusal?) {
        #expect(Self.refusal { $0.status = status } == refusal)
    }

    @Test("Each fact alone shuts it")
    func alone() {
        #expect(Self.refusal { _ in } == nil)
        #expect(Self.refusal { $0.isRead = true } == .read)
        #expect(Self.refusal { $0.isDeleted = true } == .deleted)
        #expect(Self.refusal { $0.isReplaced = true } == .replaced)
        #expect(Self.refusal { $0.isDeviceActive = false } == .deviceInactive)
        #expect(Self.refusal { $0.wasAccepted = true } == .alreadyAccepted)
        #expect(Self.refusal { $0.isOptedOut = true } == .optedOut)
    }

    @Test("What calls for attention, or writes, goes out though a socket has it; not once it was read")
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

    @Test("What was read or deleted is taken off a device in use, unless a newer one has taken its place there")
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
        // Which counts as deleted, too.
        #expect(
            refusal {
                $0.isRead = true
                $0.isDeleted = true
                $0.isReplaced = true
            } == .replaced
        )
    }

    @Test("Quiet hours shut it, unless another reason ends it for good")
    func quiet() {
        #expect(Self.refusal { $0.releaseAt = Facts.now + .seconds(60) } == .quietHours)
        #expect(
            Self.refusal {
                $0.releaseAt = Facts.now + .seconds(60)
                $0.isRead = true
            } == .read
        )
    }

    @Test("Who opted out still gets what is required, on a device that lives")
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

    @Test("It shuts at the moment of expiry")
    func expiry() {
        #expect(Self.refusal { $0.expiresAt = Facts.now + .microseconds(1) } == nil)
        #expect(Self.refusal { $0.expiresAt = Facts.now } == .expired)
        #expect(Self.refusal { $0.expiresAt = Facts.now + .seconds(-1) } == .expired)
    }

    @Test("Of several reasons the one that ends it for good is named")
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

    @Test("Words on record do not change")
    func words() {
        #expect(
            GateRefusal.allCases.map(\.rawValue) == [
                "cancelled", "read", "deleted", "replaced", "expired", "unread", "opted_out", "device_inactive",
                "already_delivered", "already_accepted", "under_way", "quiet_hours",
            ]
        )
    }
}
