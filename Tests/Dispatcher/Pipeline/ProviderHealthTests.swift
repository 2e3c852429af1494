// Carillon · ProviderHealthTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Support
import Testing

@testable import Pipeline
@testable import Storage

struct ProviderHealthTests {
    private static let now = Timestamp(seconds: 1_000)

    private static func fail(_ health: ProviderHealth, _ service: String?, times: Int = 10) {
        let reply = ProviderReply(.unanswered(reason: "timeout", mayHaveBeenSent: true))
        let scope = BreakerScope("app", service: service)
        for _ in 0..<times where health.admit(scope, isShared: false, now: self.now) == .yes {
            health.record(reply, scope, now: self.now)
        }
    }

    private static func isHeld(_ health: ProviderHealth, _ service: String?) -> Bool {
        let scope = BreakerScope("app", service: service)
        guard health.admit(scope, isShared: false, now: self.now) == .yes else { return true }
        health.withdraw(scope)
        return false
    }

    @Test("a service that fails delays no other")
    func services() {
        let health = ProviderHealth(.webpush, calls: 512, logger: TestLog.logger)
        Self.fail(health, "https://bad.example")
        #expect(Self.isHeld(health, "https://bad.example"))
        #expect(!Self.isHeld(health, "https://good.example"))
        #expect(!Self.isHeld(health, nil))
    }

    @Test("deliveries wait for their service while it is unavailable, for at most 64 services")
    func heldScopes() {
        let health = ProviderHealth(.webpush, calls: 512, logger: TestLog.logger)
        func scope(_ number: Int) -> BreakerScope {
            health.heldScope(BreakerScope("app", service: "https://\(number).example"), now: Self.now)
        }
        for number in 0...64 {
            #expect(scope(number) == BreakerScope("app"), "it is available")
            Self.fail(health, "https://\(number).example")
        }
        for _ in 0..<2 {
            for number in 0..<64 {
                #expect(scope(number) == BreakerScope("app", service: "https://\(number).example"))
            }
            #expect(scope(64) == BreakerScope("app"))
        }
        let later = Self.now + .seconds(1)
        let seventh = BreakerScope("app", service: "https://7.example")
        #expect(health.admit(seventh, isShared: false, now: later) == .yes)
        health.record(Self.accepted, seventh, now: later)
        #expect(scope(7) == BreakerScope("app"), "it is back")
        #expect(scope(64).service == "https://64.example")
    }

    @Test("drops breakers of services that work when there are many")
    func bound() {
        let health = ProviderHealth(.webpush, calls: 512, logger: TestLog.logger)
        Self.fail(health, "https://bad.example")
        for number in 0..<5_000 { #expect(!Self.isHeld(health, "https://\(number).example")) }
        #expect(health.count <= 1_000)
        #expect(Self.isHeld(health, "https://bad.example"))
    }

    private static let accepted = ProviderReply(.answered(.accepted(id: "1")))
    private static let unanswered = ProviderReply(.unanswered(reason: "timeout", mayHaveBeenSent: true))

    /// Returns how many calls are admitted until there is no room.
    private static func fill(
        _ health: ProviderHealth, _ app: String, _ service: String? = nil, lane: Lane = .bulk, after: Duration = .zero
    ) -> Int {
        let now = self.now + after
        let scope = BreakerScope(app, service: service)
        var count = 0
        while count < 5_000, health.admit(scope, lane: lane, isShared: true, now: now) == .yes { count += 1 }
        return count
    }

    private static func answer(
        _ health: ProviderHealth, _ app: String, _ service: String? = nil, times: Int = 1, after: Duration = .zero
    ) {
        let scope = BreakerScope(app, service: service)
        for _ in 0..<times { health.record(self.accepted, scope, since: self.now, now: self.now + after) }
    }

    @Test(
        "an app that shares its provider gets a few calls until it answers, then three quarters of them",
        arguments: [8, 100, 512, 4_096])
    func share(calls: Int) {
        let health = ProviderHealth(.fcm, calls: calls, logger: TestLog.logger)
        var inFlight = Self.fill(health, "app")
        #expect(inFlight == min(calls * 3 / 4, max(8, calls / 64)))
        Self.answer(health, "app")
        inFlight += Self.fill(health, "app") - 1
        #expect(inFlight == calls * 3 / 4)
        #expect(health.overviews(of: ["app"], now: Self.now)["app"]?.inFlight == inFlight)
        #expect(health.admit(BreakerScope("other"), isShared: true, now: Self.now) == .yes)
        // The permits of urgent lanes are still free.
        for lane in [Lane.normal, .critical] {
            #expect(Self.fill(health, "app", lane: lane) == max(1, calls / 16))
            #expect(Self.fill(health, "app") == 0)
        }
    }

    @Test("an app keeps its share while it is idle, for ten minutes")
    func burst() {
        let health = ProviderHealth(.fcm, calls: 512, logger: TestLog.logger)
        #expect(Self.fill(health, "app") == 8)
        for _ in 0..<500 { #expect(health.admit(BreakerScope("app"), isShared: true, now: Self.now) != .yes) }
        Self.answer(health, "app")
        #expect(Self.fill(health, "app") == 377)
        Self.answer(health, "app", times: 384)
        #expect(Self.fill(health, "app", after: .seconds(590)) == 384)
        Self.answer(health, "app", times: 384)
        #expect(Self.fill(health, "app", after: .seconds(700)) == 8)
    }

    @Test("services that hang leave room for those that answer, and for new ones once their calls end")
    func offenders() {
        let health = ProviderHealth(.webpush, calls: 512, logger: TestLog.logger)
        #expect(Self.fill(health, "app", "https://good.example") == 8)
        Self.answer(health, "app", "https://good.example", times: 8)
        var held: [String: Int] = [:]
        for number in 0..<100 {
            let service = "https://\(number).example"
            held[service] = Self.fill(health, "app", service)
        }
        #expect(held.values.reduce(0, +) == 51)
        let new = BreakerScope("app", service: "https://new.example")
        #expect(health.admit(new, isShared: false, now: Self.now) != .yes)
        #expect(Self.fill(health, "app", "https://good.example") == 384)
        for (service, count) in held {
            for _ in 0..<count {
                health.record(
                    Self.unanswered, BreakerScope("app", service: service), since: Self.now,
                    now: Self.now + .seconds(30))
            }
        }
        #expect(Self.fill(health, "app", "https://new.example", after: .seconds(30)) == 8)
    }

    @Test("opens when a service with many calls in flight stops answering, and counts it with the silent ones")
    func silence() {
        let lines = LogRecorder { event in
            "\(event.level) \(event.message): \(event.metadata?["answer"]?.description ?? "")"
        }
        let health = ProviderHealth(.webpush, calls: 512, logger: lines.logger)
        let hanging = BreakerScope("app", service: "https://hangs.example")
        let new = BreakerScope("app", service: "https://new.example")
        #expect(health.admit(hanging, isShared: false, now: Self.now) == .yes)
        Self.answer(health, "app", "https://hangs.example")
        #expect(Self.fill(health, "app", "https://hangs.example") == 384)
        let later = Self.now + .seconds(13)
        // It hangs at its limit, and is looked at all the same.
        #expect(health.admit(hanging, isShared: false, now: later) == .no(until: later + .seconds(1)))
        #expect(health.overviews(of: ["app"], now: later)["app"]?.state == .open(until: later + .seconds(1)))
        #expect(health.admit(new, isShared: false, now: later) != .yes)
        let end = later + .seconds(17)
        for _ in 0..<384 { health.record(Self.unanswered, hanging, since: Self.now, now: end) }
        #expect(health.admit(new, isShared: false, now: end) == .yes)
        #expect(lines.all == ["warning provider unavailable; its deliveries wait: none"])
    }

    @Test("opens when all calls of an app that never answered hang")
    func silentStranger() {
        let health = ProviderHealth(.fcm, calls: 512, logger: TestLog.logger)
        #expect(Self.fill(health, "app") == 8)
        let later = Self.now + .seconds(13)
        #expect(health.admit(BreakerScope("app"), isShared: true, now: later) == .no(until: later + .seconds(1)))
        #expect(health.state(of: ["app"], now: later) == .open(until: later + .seconds(1)))
    }

    @Test("opens when all calls to a provider hang, if they are few")
    func silentProvider() {
        let health = ProviderHealth(.fcm, calls: 8, logger: TestLog.logger)
        // Entries that were taken over are sent in addition to the others.
        for _ in 0..<9 { #expect(health.admit(BreakerScope("app"), isShared: false, now: Self.now) == .yes) }
        let later = Self.now + .seconds(13)
        #expect(health.admit(BreakerScope("app"), isShared: false, now: later) == .no(until: later + .seconds(1)))
    }

    @Test("a call that waits when its breaker opens has to wait on; probes may start")
    func paused() {
        let health = ProviderHealth(.fcm, calls: 512, logger: TestLog.logger)
        #expect(health.admit(BreakerScope("app"), isShared: true, now: Self.now) == .yes)
        #expect(!health.isPaused(BreakerScope("app"), since: Self.now))
        let opened = Self.now + .seconds(1)
        let probing = opened + .seconds(60)
        health.hold(["app"], until: probing, now: opened)
        #expect(health.isPaused(BreakerScope("app"), since: Self.now))
        #expect(!health.isPaused(BreakerScope("other"), since: Self.now))
        #expect(!health.isPaused(BreakerScope("app", service: "https://push.example"), since: Self.now))
        #expect(health.admit(BreakerScope("app"), isShared: true, now: probing) == .yes)
        #expect(!health.isPaused(BreakerScope("app"), since: probing), "it is a probe")
        #expect(health.isPaused(BreakerScope("app"), since: Self.now), "it is none")
        health.record(Self.accepted, BreakerScope("app"), since: probing, now: probing)
        #expect(!health.isPaused(BreakerScope("app"), since: Self.now))
    }

    @Test("a withdrawn call does not count")
    func withdrawn() {
        let health = ProviderHealth(.webpush, calls: 512, logger: TestLog.logger)
        for number in 0..<100 {
            let service = "https://\(number).example"
            for _ in 0..<Self.fill(health, "app", service) { health.withdraw(BreakerScope("app", service: service)) }
        }
        #expect(Self.fill(health, "app", "https://new.example") == 8)
    }

    @Test(
        "a message that was not sent says nothing about the provider",
        arguments: [ProviderReply.Result.unsendable(reason: "token_malformed"), .noTurn, .fenced])
    func uncalled(result: ProviderReply.Result) {
        let health = ProviderHealth(.fcm, calls: 512, logger: TestLog.logger)
        let reply = ProviderReply(result)
        func end(_ reply: ProviderReply, times: Int, after: Duration) {
            for _ in 0..<times {
                health.record(reply, BreakerScope("app"), since: Self.now + after, now: Self.now + after)
            }
        }
        // It neither opens nor counts as answering.
        for _ in 0..<4 {
            #expect(Self.fill(health, "app") == 8)
            end(reply, times: 8, after: .zero)
        }
        #expect(health.state(of: ["app"], now: Self.now) == .closed)
        Self.fail(health, nil)
        let probing = Duration.seconds(1)
        #expect(Self.fill(health, "app", after: probing) == 2)
        end(reply, times: 2, after: probing)
        #expect(health.state(of: ["app"], now: Self.now + probing) == .probing)
        #expect(Self.fill(health, "app", after: probing) == 2, "the probes no longer count")
        end(Self.unanswered, times: 1, after: probing)
        // Longer than the previous pause.
        let until = Self.now + probing + .seconds(2)
        #expect(health.state(of: ["app"], now: Self.now + probing) == .open(until: until))
    }

    @Test("logs a configuration that is rejected for some devices once a minute for each app and push service")
    func partialConfiguration() {
        let lines = LogRecorder { event in
            let words = ["app", "service", "answer", "tries"].compactMap { event.metadata?[$0]?.description }
            return ([event.level.rawValue] + words).joined(separator: " ")
        }
        let health = ProviderHealth(.webpush, calls: 512, logger: lines.logger)
        let reply = ProviderReply(.answered(.configuration(reason: "HTTP_403", concernsAll: false)))
        func record(_ reply: ProviderReply, _ app: String, _ service: String = "push", after delay: Duration) {
            let now = Self.now + delay
            let scope = BreakerScope(app, service: "https://\(service).example")
            #expect(health.admit(scope, isShared: false, now: now) == .yes)
            health.record(reply, scope, since: now, now: now)
        }
        for _ in 0..<20 { record(reply, "one", after: .zero) }
        record(reply, "one", after: .seconds(59))
        func line(_ app: String, _ service: String = "push") -> String {
            "error \(app) https://\(service).example HTTP_403 "
                + "critical any number for a day, later 40, normal 8, bulk 16"
        }
        #expect(lines.all == [line("one")])
        record(reply, "one", "other", after: .seconds(59))
        record(ProviderReply(.answered(.accepted(id: "1"))), "two", after: .seconds(59))
        record(reply, "two", after: .seconds(59))
        record(reply, "one", after: .seconds(60))
        #expect(lines.all == [line("one"), line("one", "other"), line("two"), line("one")])
    }

    @Test(
        "logs a pause once for all calls in flight, and again when a probe gets the same answer",
        arguments: [
            ("error", .noCredential(reason: "no key")),
            ("warning", .answered(.slowDown(reason: "QUOTA_EXCEEDED", after: .seconds(60)))),
        ] as [(String, ProviderReply.Result)])
    func callsInFlight(level: String, result: ProviderReply.Result) {
        let lines = LogRecorder { $0.level.rawValue }
        let health = ProviderHealth(.fcm, calls: 512, logger: lines.logger)
        for _ in 0..<3 { #expect(health.admit(BreakerScope("app"), isShared: false, now: Self.now) == .yes) }
        for delay in 0..<3 {
            health.record(
                ProviderReply(result), BreakerScope("app"), since: Self.now, now: Self.now + .microseconds(delay))
        }
        #expect(lines.all == [level])
        let probing = Self.now + .seconds(61)
        #expect(health.admit(BreakerScope("app"), isShared: false, now: probing) == .yes)
        health.record(ProviderReply(result), BreakerScope("app"), since: probing, now: probing)
        #expect(lines.all == [level, level])
    }

    @Test("logs a much longer pause although the app is paused already")
    func longerPause() {
        let lines = LogRecorder { $0.level.rawValue }
        let health = ProviderHealth(.fcm, calls: 512, logger: lines.logger)
        #expect(health.admit(BreakerScope("app"), isShared: false, now: Self.now) == .yes)
        Self.fail(health, nil)
        let before = lines.all.count
        let answer = ProviderReply(.answered(.slowDown(reason: "QUOTA_EXCEEDED", after: .seconds(3_600))))
        health.record(answer, BreakerScope("app"), since: Self.now, now: Self.now)
        #expect(before > 0 && lines.all.count == before + 1)
    }

    @Test("an app is unavailable when all its services are, not when one is")
    func overview() {
        let health = ProviderHealth(.webpush, calls: 512, logger: TestLog.logger)
        func overview(after delay: Duration = .zero) -> ProviderHealth.Overview? {
            health.overviews(of: ["app"], now: Self.now + delay)["app"]
        }
        func succeed(_ service: String) {
            let scope = BreakerScope("app", service: service)
            #expect(health.admit(scope, isShared: false, now: Self.now) == .yes)
            health.record(Self.accepted, scope, now: Self.now)
        }
        #expect(overview() == ProviderHealth.Overview())
        Self.fail(health, "https://bad.example")
        #expect(overview()?.state == .open(until: Self.now + .seconds(1)))
        succeed("https://good.example")
        for number in 0..<9 { Self.fail(health, "https://\(number).example") }
        #expect(overview() == ProviderHealth.Overview(state: .closed, inFlight: 0, servicesOut: 10))
        Self.fail(health, "https://good.example")
        #expect(overview()?.state == .open(until: Self.now + .seconds(1)))
        #expect(overview(after: .seconds(1))?.state == .probing)
        #expect(overview(after: .seconds(601)) == ProviderHealth.Overview(), "none was called for ten minutes")
    }

    @Test("a provider is unavailable when all its apps are, until the first may probe")
    func bestState() {
        let health = ProviderHealth(.fcm, calls: 512, logger: TestLog.logger)
        #expect(health.state(of: ["a", "b"], now: Self.now) == .closed)
        func fail(_ app: String, at moment: Timestamp) {
            let reply = ProviderReply(.unanswered(reason: "timeout", mayHaveBeenSent: true))
            while health.admit(BreakerScope(app), isShared: false, now: moment) == .yes {
                health.record(reply, BreakerScope(app), now: moment)
            }
        }
        fail("a", at: Self.now)
        #expect(health.state(of: ["a", "b"], now: Self.now) == .closed)
        #expect(health.state(of: ["a"], now: Self.now) == .open(until: Self.now + .seconds(1)))
        fail("b", at: Self.now + .milliseconds(500))
        let later = Self.now + .milliseconds(900)
        #expect(health.state(of: ["a", "b"], now: later) == .open(until: Self.now + .seconds(1)))
        #expect(health.state(of: ["a", "b"], now: Self.now + .seconds(1)) == .probing)
        #expect(health.state(of: [], now: later) == .closed)
        let accepted = ProviderReply(.answered(.accepted(id: "1")))
        let back = Self.now + .seconds(2)
        #expect(health.admit(BreakerScope("a"), isShared: false, now: back) == .yes)
        health.record(accepted, BreakerScope("a"), since: back, now: back)
        #expect(health.state(of: ["a", "b"], now: back) == .closed)
    }
}

/// The states of providers that dispatchers publish.
@Suite(.timeLimit(.minutes(10)))
struct ProviderStateServiceTests {
    @Test("a dispatcher that starts removes the states of killed ones")
    func killed() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let board = dispatcher.live.providerBoard
            try await board.publish([], dispatcher: "killed", now: TestDispatcher.now + .seconds(-60))
            try await board.publish([], dispatcher: "running", now: TestDispatcher.now)
            let service = ProviderStateService(dispatcher: dispatcher, deliveries: [])
            let run = Task { try await service.run() }
            defer { run.cancel() }
            try await eventually("only those that run are left") {
                let names = try await dispatcher.redis.send("HKEYS", .text(dispatcher.keys.providers)).strings()
                return Set(names) == ["running", "test"]
            }
            run.cancel()
            _ = await run.result
        }
    }

    @Test("a dispatcher with a long lease publishes before its last states are stale")
    func interval() async throws {
        try await TestDispatcher.with(lease: .seconds(60)) { dispatcher, _ in
            #expect(ProviderStateService(dispatcher: dispatcher, deliveries: []).interval == .seconds(5))
        }
    }
}
