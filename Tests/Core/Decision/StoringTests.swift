// Carillon · StoringTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Decision: storing", .timeLimit(.minutes(10)))
struct StoringTests {
    private static func refused(_ reason: Reason) -> [Step] {
        [.store(Storing(status: .suppressed, reason: reason, channels: []))]
    }

    private static func pending(_ channels: Channels) -> [Step] {
        [.store(Storing(status: .pending, reason: nil, channels: channels))]
    }

    private static let expired = [Step.store(Storing(status: .expired, reason: .expired, channels: []))]

    private static func steps(_ change: (inout DecisionFacts) -> Void) -> [Step] {
        decide(Facts.make(.arrived, change))
    }

    @Test("the job, the type and the delivery limit the channels")
    func channels() {
        let table: [(job: Channels, type: Channels, delivery: DeliveryClass, steps: [Step])] = [
            (.all, [.inApp, .push], .push, Self.pending([.inApp, .push])),
            (.all, .all, .push, Self.pending([.inApp, .push])),
            (.all, .all, .inApp, Self.pending([.inApp])),
            (.all, [.email], .push, Self.pending([.email])),
            ([.push], .all, .push, Self.pending([.push])),
            ([.push], .all, .inApp, Self.refused(.noChannel)),
            ([.push], [.inApp], .push, Self.refused(.noChannel)),
            ([.email], [.inApp, .push], .push, Self.refused(.noChannel)),
            (.all, [.push], .inApp, Self.refused(.noChannel)),
            (.all, [], .push, Self.refused(.noChannel)),
        ]
        for row in table {
            let steps = Self.steps {
                $0.notification.channels = row.job
                $0.type.channels = row.type
                $0.notification.delivery = row.delivery
            }
            #expect(steps == row.steps, "\(row)")
        }
    }

    @Test("expiry wins over every other rule; without expiry it never applies")
    func expiry() {
        for (offset, isExpired) in [(-1, true), (0, true), (1, false)] {
            let end = Facts.now + .microseconds(offset)
            let expiring = Facts.notification { $0.expiresAt = end }
            let kept = Facts.notification { $0.keepUntil = end }
            for notification in [expiring, kept] {
                let steps = decide(Facts.make(.arrived, of: notification))
                #expect((steps == Self.expired) == isExpired)
            }
        }
        #expect(Self.steps { $0.notification.endsAt = nil } == Self.pending([.inApp, .push]))
        let steps = Self.steps {
            $0.notification.endsAt = Facts.now
            $0.type.isEnabled = false
            $0.type.isRequired = true
            $0.settings.isOptedOut = true
        }
        #expect(steps == Self.expired)
    }

    @Test("a disabled type reaches no user, required or not")
    func disabled() {
        for isRequired in [false, true] {
            let steps = Self.steps {
                $0.type.isEnabled = false
                $0.type.isRequired = isRequired
            }
            #expect(steps == Self.refused(.typeDisabled))
        }
    }

    @Test("a user who opted out gets only required notifications")
    func optedOut() {
        #expect(Self.steps { $0.settings.isOptedOut = true } == Self.refused(.optedOut))
        let steps = Self.steps {
            $0.settings.isOptedOut = true
            $0.type.isRequired = true
            $0.type.isOnByDefault = false
            $0.preference = TypePreference(inApp: false, push: false, email: false)
        }
        #expect(steps == Self.pending([.inApp, .push]))
    }

    @Test("preferences narrow the channels; types that are off by default need one")
    func preferences() {
        typealias Row = (isOnByDefault: Bool, inApp: Bool?, push: Bool?, email: Bool?, steps: [Step])
        let table: [Row] = [
            (true, nil, nil, nil, Self.pending([.inApp, .push])),
            (true, nil, nil, true, Self.pending(.all)),
            (true, true, true, true, Self.pending(.all)),
            (true, false, nil, nil, Self.pending([.push])),
            (true, nil, false, nil, Self.pending([.inApp])),
            (true, nil, nil, false, Self.pending([.inApp, .push])),
            (true, false, false, nil, Self.refused(.optedOutOfType)),
            (true, false, false, true, Self.pending([.email])),
            (true, false, false, false, Self.refused(.optedOutOfType)),
            (false, nil, nil, nil, Self.refused(.notOptedIn)),
            (false, true, nil, nil, Self.pending([.inApp])),
            (false, nil, true, nil, Self.pending([.push])),
            (false, true, true, true, Self.pending(.all)),
            (false, true, false, nil, Self.pending([.inApp])),
            (false, false, nil, nil, Self.refused(.optedOutOfType)),
            (false, false, false, false, Self.refused(.optedOutOfType)),
        ]
        for row in table {
            let steps = Self.steps {
                $0.type.channels = .all
                $0.type.isOnByDefault = row.isOnByDefault
                $0.preference = TypePreference(inApp: row.inApp, push: row.push, email: row.email)
            }
            #expect(steps == row.steps, "\(row)")
        }
    }

    @Test("a user who refused only e-mail has no preference for a type without e-mail")
    func otherChannel() {
        func steps(_ channels: Channels) -> [Step] {
            Self.steps {
                $0.type.channels = channels
                $0.type.isOnByDefault = false
                $0.preference = TypePreference(email: false)
            }
        }
        #expect(steps([.inApp, .push]) == Self.refused(.notOptedIn))
        #expect(steps(.all) == Self.refused(.optedOutOfType))
    }

    @Test("e-mail needs no preference if the type insists or sends it when unread")
    func unasked() {
        let insists = Self.steps {
            $0.type.channels = .all
            $0.type.isRequired = true
        }
        #expect(insists == Self.pending(.all))
        let escalates = Self.steps {
            $0.type.channels = [.inApp, .email]
            $0.type.emailDelay = .seconds(60)
        }
        #expect(escalates == Self.pending([.inApp, .email]))
    }

    @Test("a preference cannot open a channel that the type or the job closes")
    func preferencesNeverWiden() {
        let steps = Self.steps {
            $0.type.channels = [.inApp]
            $0.preference = TypePreference(inApp: false, push: true, email: true)
        }
        #expect(steps == Self.refused(.optedOutOfType))
    }

    @Test("ignores presence and devices")
    func ignoresPresence() {
        for presence in [Presence.unknown, .offline, .online([Facts.connection])] {
            let steps = Self.steps {
                $0.presence = presence
                $0.deviceCount = 0
            }
            #expect(steps == Self.pending([.inApp, .push]))
        }
    }
}
