// Carillon · HoldingBackTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Core

/// Quiet hours, caps, idle users and e-mail.
@Suite("Decision: holding back", .timeLimit(.minutes(10)))
struct HoldingBackTests {
    private static let active = Presence.online([Facts.connection])
    private static let idle = Presence.online([Self.away(for: .seconds(90))])

    private static func away(for duration: Duration) -> ConnectionPresence {
        ConnectionPresence(
            connection: "c2", node: "n1", dialect: .native, state: .idle, since: Facts.now + .seconds(-600),
            stateSince: Facts.now - duration)
    }

    private static let quietEnd = Facts.now + .seconds(3_600)

    /// Quiet hours around now, which end an hour later.
    private static let quiet: QuietHours = {
        let minute = ZoneRules.utc.local(at: Facts.now).seconds / 60
        return QuietHours(start: (minute + 1_440 - 60) % 1_440, end: (minute + 60) % 1_440)
    }()

    private static func steps(
        _ progress: DecisionFacts.Progress = .stored,
        _ change: (inout DecisionFacts) -> Void
    ) -> [Step] {
        decide(Facts.make(progress, change))
    }

    @Test(
        "in quiet hours the type's policy decides on the push",
        arguments: [
            (QuietPolicy.defer, Severity.info, [Step.postpone(.release, until: quietEnd, reason: .quietHours)]),
            (.defer, .alert, [.postpone(.release, until: quietEnd, reason: .quietHours)]),
            (
                .inAppOnly, .info,
                [.note(.quietHours), .settle(status: .sent, reason: .quietHours, via: .inbox)]
            ),
            (.ignore, .alert, [.push]),
            // Only alerts ignore them, whatever the type's severity.
            (.ignore, .info, [.postpone(.release, until: quietEnd, reason: .quietHours)]),
        ]
    )
    func policies(policy: QuietPolicy, severity: Severity, expected: [Step]) {
        let steps = Self.steps {
            $0.settings.quietHours = Self.quiet
            $0.type.quietHours = policy
            // The catalog allows `ignore` for such a type alone.
            if policy == .ignore { $0.type.severity = .alert }
            $0.notification.lane = .critical
            $0.notification.severity = severity
            $0.notification.endsAt = nil
        }
        #expect(steps == expected)
    }

    @Test("a notification over its cap at the end of quiet hours is settled, even if only its e-mail went out")
    func cappedRelease() {
        func release(_ channels: Channels) -> [Step] {
            Self.steps(.due(.release)) {
                $0.notification.channels = channels
                $0.notification.status = .deferred
                $0.cap = .type
            }
        }
        #expect(
            release([.inApp, .push]) == [
                .note(.cappedByType), .settle(status: .sent, reason: .cappedByType, via: .inbox),
            ])
        #expect(
            release([.push, .email]) == [
                .note(.cappedByType), .settleWithMail(reason: .cappedByType),
            ])
        #expect(release([.push]) == [.note(.cappedByType), .settle(status: .failed, reason: .cappedByType, via: nil)])
    }

    @Test(
        "a notification outside the inbox whose push was enqueued ends with its mail once no device is left",
        arguments: [DecisionFacts.Progress.due(.release), .unproven])
    func withoutDevice(progress: DecisionFacts.Progress) {
        let steps = Self.steps(progress) {
            $0.notification.channels = [.push, .email]
            $0.notification.status = .pending
            $0.notification.isQueued = true
            $0.deviceCount = 0
        }
        #expect(steps == [.settleWithMail(reason: .noDevice)])
    }

    @Test("a notification dropped in quiet hours is not stored, unless it would not interrupt")
    func drop() {
        func stored(_ change: (inout DecisionFacts) -> Void) -> Storing {
            let facts = Facts.make(.arrived) {
                $0.settings.quietHours = Self.quiet
                $0.type.quietHours = .drop
                change(&$0)
            }
            return storing(facts)
        }
        #expect(stored { _ in } == Storing(status: .suppressed, reason: .quietHours, channels: []))
        #expect(
            stored { $0.notification.delivery = .inApp }
                == Storing(status: .pending, reason: nil, channels: [.inApp]))
        #expect(
            stored { $0.settings.quietHours = nil }
                == Storing(status: .pending, reason: nil, channels: [.inApp, .push]))
    }

    @Test("an open socket gets it silently in quiet hours, and its proof is awaited")
    func silent() {
        let steps = Self.steps {
            $0.settings.quietHours = Self.quiet
            $0.presence = Self.active
        }
        #expect(steps == [.publish(isSilent: true), .awaitProof(within: proofDeadline)])
        let unproven = Self.steps(.unproven) { $0.settings.quietHours = Self.quiet }
        #expect(unproven == [.postpone(.release, until: Self.quietEnd, reason: .quietHours)])
    }

    @Test("a simulation pushes once to an idle user: without a proof, or when it stays unread")
    func idleOnce() {
        let facts = Facts.make(.arrived) {
            $0.presence = Self.idle
            $0.notification.endsAt = nil
        }
        func pushes(isProven: Bool) -> [Timestamp] {
            Simulation(facts, isProven: isProven).run().filter { $0.step == .push }.map(\.at)
        }
        #expect(pushes(isProven: false) == [Facts.now + proofDeadline])
        #expect(pushes(isProven: true) == [Facts.now + facts.type.attentionDelay])
    }

    @Test("a type's quiet hours replace the user's")
    func override() {
        let own = Self.steps {
            $0.preference.quietHours = .hours(Self.quiet)
        }
        #expect(own == [.postpone(.release, until: Self.quietEnd, reason: .quietHours)])
        let none = Self.steps {
            $0.settings.quietHours = Self.quiet
            $0.preference.quietHours = QuietOverride.none
        }
        #expect(none == [.push])
        let inherited = Self.steps {
            $0.settings.quietHours = Self.quiet
            $0.preference.quietHours = .inherited
        }
        #expect(inherited == own)
    }

    @Test("the user's quiet hours apply to a type that has become required, whatever was set for it before")
    func requiredOverride() {
        func steps(_ own: QuietOverride, of user: QuietHours?) -> [Step] {
            Self.steps {
                $0.type.isRequired = true
                $0.settings.quietHours = user
                $0.preference.quietHours = own
            }
        }
        #expect(steps(.hours(Self.quiet), of: nil) == [.push])
        let postponed = [Step.postpone(.release, until: Self.quietEnd, reason: .quietHours)]
        #expect(steps(QuietOverride.none, of: Self.quiet) == postponed)
    }

    @Test("a release pushes, or waits again if it is still quiet")
    func release() {
        #expect(Self.steps(.due(.release)) { _ in } == [.push])
        #expect(
            Self.steps(.due(.release)) { $0.settings.quietHours = Self.quiet }
                == [.postpone(.release, until: Self.quietEnd, reason: .quietHours)])
        #expect(
            Self.steps(.due(.release)) { $0.deviceCount = 0 }
                == [.settle(status: .sent, reason: .noDevice, via: .inbox)])
    }

    private static func moment(_ change: (inout DecisionFacts) -> Void) -> Timestamp? {
        Facts.make(.stored) {
            $0.settings.quietHours = self.quiet
            $0.notification.endsAt = nil
            change(&$0)
        }.releaseAt
    }

    @Test("a zone's releases are spread over minutes, critical ones first, and a user's arrive together")
    func spread() {
        for (lane, most) in [(Lane.critical, 0), (.normal, 300), (.bulk, 900)] {
            let moments = (0..<200).map { number in
                Self.moment {
                    $0.notification.user = "u\(number)"
                    $0.notification.lane = lane
                }
            }
            let delays = moments.map { ($0?.microseconds ?? 0) - Self.quietEnd.microseconds }
            #expect(delays.allSatisfy { (0...Int64(most) * 1_000_000).contains($0) })
            // Every tenth of the time gets some.
            let tenths = Set(delays.map { most == 0 ? 0 : $0 / (Int64(most) * 100_000) })
            #expect(tenths.count == (most == 0 ? 1 : 10), "\(lane)")
        }
        let first = Self.moment { _ in }
        let second = Self.moment {
            $0.notification = DecisionFacts.Subject(
                Notification(id: NotificationID(high: 5, low: 6), user: "u1", type: "greeting", createdAt: Facts.now))
        }
        #expect(first != nil)
        #expect(first == second)
    }

    @Test("a notification that would expire or meet other quiet hours is released at the very end")
    func spreadEnds() {
        let late = Self.moment { _ in }
        #expect(late.map { $0 > Self.quietEnd } == true)
        #expect(Self.moment { $0.notification.endsAt = late } == Self.quietEnd)
        #expect(Self.moment { $0.notification.endsAt = late.map { $0 + .milliseconds(1) } } == late)
        // Quiet except for one minute a day, which a search would rarely hit.
        for number in 0..<20 {
            let moment = Self.moment {
                $0.notification.user = "u\(number)"
                $0.notification.lane = .bulk
                $0.settings.quietHours = QuietHours(start: (Self.quiet.end + 1) % 1_440, end: Self.quiet.end)
            }
            let delay = moment.map { $0.microseconds - Self.quietEnd.microseconds }
            #expect(delay.map { (0..<60_000_000).contains($0) } == true)
        }
    }

    @Test("over a cap it stays in the inbox with the reason; alerts are exempt", arguments: CapScope.allCases)
    func caps(scope: CapScope) {
        let words: [CapScope: Reason] = [
            .user: .cappedByUser, .type: .cappedByType, .category: .cappedByCategory,
        ]
        let reason = words[scope] ?? .offline
        let offline = Self.steps { $0.cap = scope }
        #expect(offline == [.note(reason), .settle(status: .sent, reason: reason, via: .inbox)])
        let online = Self.steps {
            $0.cap = scope
            $0.presence = Self.active
        }
        let settled = Step.settle(status: .sent, reason: reason, via: .socket)
        #expect(online == [.publish(isSilent: false), .note(reason), settled])
        let alert = Self.steps {
            $0.cap = scope
            $0.notification.severity = .alert
        }
        #expect(alert == [.push])
    }

    @Test("a cap does not hold back what quiet hours silence anyway; it is checked at the release")
    func capsInQuietHours() {
        func steps(_ policy: QuietPolicy, _ presence: Presence) -> [Step] {
            Self.steps {
                $0.cap = .user
                $0.settings.quietHours = Self.quiet
                $0.type.quietHours = policy
                $0.presence = presence
            }
        }
        #expect(steps(.defer, .offline) == [.postpone(.release, until: Self.quietEnd, reason: .quietHours)])
        #expect(steps(.defer, Self.active) == [.publish(isSilent: true), .awaitProof(within: proofDeadline)])
        #expect(
            steps(.inAppOnly, .offline)
                == [.note(.quietHours), .settle(status: .sent, reason: .quietHours, via: .inbox)])
    }

    @Test("an idle user gets a push after the type's delay; one active connection makes the user active")
    func attention() {
        let idle = Self.steps {
            $0.presence = Self.idle
            $0.type.attentionDelay = .seconds(30)
        }
        #expect(
            idle == [
                .publish(isSilent: false), .awaitProof(within: proofDeadline),
                .postpone(.attention, until: Facts.now + .seconds(30), reason: .idle),
            ])
        let both = Self.steps {
            $0.presence = .online([Facts.connection, Self.away(for: .seconds(600))])
        }
        #expect(both == [.publish(isSilent: false), .awaitProof(within: proofDeadline)])
        let lately = Self.steps { $0.presence = .online([Self.away(for: .seconds(89))]) }
        #expect(lately == both)
        #expect(Self.steps(.due(.attention)) { _ in } == [.push])
        #expect(Self.steps(.due(.attention)) { $0.deviceCount = 0 } == [])
        #expect(
            Self.steps(.due(.attention)) { $0.settings.quietHours = Self.quiet }
                == [.postpone(.attention, until: Self.quietEnd, reason: .quietHours)])
        for policy in [QuietPolicy.inAppOnly, .drop] {
            let quiet = Self.steps(.due(.attention)) {
                $0.settings.quietHours = Self.quiet
                $0.type.quietHours = policy
            }
            #expect(quiet == [])
            #expect(Self.steps(.due(.attention)) { $0.type.quietHours = policy } == [.push])
        }
    }

    @Test("a type that is pushed when online goes to connected users' devices after its delay, except in quiet hours")
    func pushWhenOnline() {
        func steps(_ presence: Presence, _ change: (inout DecisionFacts) -> Void = { _ in }) -> [Step] {
            Self.steps {
                $0.presence = presence
                $0.type.isPushedWhenOnline = true
                $0.type.attentionDelay = .seconds(1)
                change(&$0)
            }
        }
        func both(_ reason: Reason) -> [Step] {
            [
                .publish(isSilent: false), .awaitProof(within: proofDeadline),
                .postpone(.attention, until: Facts.now + .seconds(1), reason: reason),
            ]
        }
        #expect(steps(Self.active) == both(.pushWhenOnline))
        #expect(steps(Self.idle) == both(.idle))
        #expect(steps(.offline) == [.push])
        #expect(
            steps(Self.active) { $0.settings.quietHours = Self.quiet }
                == [.publish(isSilent: true), .awaitProof(within: proofDeadline)])
        #expect(steps(Self.active) { $0.notification.channels = [.inApp] } == [.publish(isSilent: false)])
    }

    @Test("a simulation pushes a type that is pushed when online once, proven or not", arguments: [false, true])
    func pushWhenOnlineOnce(isProven: Bool) {
        let facts = Facts.make(.arrived) {
            $0.presence = Self.active
            $0.type.isPushedWhenOnline = true
            $0.type.attentionDelay = .seconds(1)
        }
        let pushes = Simulation(facts, isProven: isProven).run().filter { $0.step == .push }
        #expect(pushes.map(\.at) == [Facts.now + .seconds(1)])
    }

    @Test("e-mail goes out at once, or after the type's delay if still unread")
    func email() {
        let delayed = Self.steps {
            $0.notification.channels = [.inApp, .email]
            $0.type.emailDelay = .seconds(600)
        }
        #expect(
            delayed == [
                .settle(status: .sent, reason: .offline, via: .inbox),
                .postpone(.email, until: Facts.now + .seconds(600), reason: .unread),
            ])
        #expect(Self.steps(.due(.email)) { _ in } == [.email(isOnlyChannel: false)])
        #expect(Self.steps(.due(.email)) { $0.notification.endsAt = Facts.now } == [])
    }

    @Test("channels only shrink, and postponed steps are later and outside quiet hours")
    func property() throws {
        let zones = SystemZones()
        let names = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu"]
        var generator = SeededGenerator(seed: 7)
        for _ in 0..<3_000 {
            let zone = try #require(zones.rules(names.randomElement(using: &generator) ?? ""))
            let facts = Self.random(zone: zone, &generator)
            let steps = decide(facts)
            for step in steps {
                switch step {
                case .store(let stored):
                    #expect(stored.channels.isSubset(of: facts.notification.channels))
                    #expect(stored.channels.isSubset(of: facts.type.channels))
                case .postpone(.release, let until, _, _), .postpone(.attention, let until, .quietHours, _):
                    #expect(until > facts.now)
                    var later = facts
                    later.now = until
                    #expect(later.quietEnd == nil)
                    let end = try #require(facts.quietEnd)
                    #expect(until >= end)
                    #expect(until <= end + ReleaseSpread.longest(facts.notification.lane))
                    // The same result at any other time in these quiet hours.
                    later.now = facts.now + .microseconds((end.microseconds - facts.now.microseconds) / 2)
                    #expect(later.releaseAt == until)
                case .postpone(_, let until, _, _):
                    #expect(until >= facts.now)
                case .push:
                    #expect(facts.deviceCount > 0)
                    #expect(facts.quietEnd == nil)
                default: break
                }
            }
        }
    }

    private static func random(zone: ZoneRules, _ generator: inout SeededGenerator) -> DecisionFacts {
        let progress: [DecisionFacts.Progress] = [
            .arrived, .stored, .unproven, .due(.release), .due(.attention), .due(.email),
        ]
        var facts = Facts.make(progress.randomElement(using: &generator) ?? .stored)
        func flag(_ generator: inout SeededGenerator) -> Bool? {
            [true, false, nil].randomElement(using: &generator) ?? nil
        }
        facts.zone = zone
        facts.now = Timestamp(seconds: .random(in: 1_700_000_000...2_000_000_000, using: &generator))
        facts.notification.channels = Channels(rawValue: .random(in: 0...7, using: &generator))
        facts.notification.severity = Severity.allCases.randomElement(using: &generator) ?? .info
        facts.notification.delivery = DeliveryClass.allCases.randomElement(using: &generator) ?? .push
        facts.notification.endsAt = flag(&generator) == true ? nil : facts.now + .seconds(600)
        facts.notification.lane = Lane.allCases.randomElement(using: &generator) ?? .normal
        facts.type.channels = Channels(rawValue: .random(in: 0...7, using: &generator))
        facts.type.quietHours = QuietPolicy.allCases.randomElement(using: &generator) ?? .defer
        facts.type.isOnByDefault = flag(&generator) ?? true
        facts.type.isRequired = flag(&generator) ?? false
        facts.type.isPushedWhenOnline = flag(&generator) ?? false
        facts.preference = TypePreference(
            inApp: flag(&generator), push: flag(&generator), email: flag(&generator))
        facts.settings.quietHours = QuietHours(
            start: .random(in: 0..<1_440, using: &generator), end: .random(in: 0..<1_440, using: &generator),
            weekdays: .random(in: 0...0x7F, using: &generator))
        facts.presence = [.unknown, .offline, Self.active, Self.idle].randomElement(using: &generator) ?? .unknown
        facts.deviceCount = .random(in: 0...2, using: &generator)
        facts.cap = flag(&generator) == true ? CapScope.allCases.randomElement(using: &generator) : nil
        return facts
    }
}
