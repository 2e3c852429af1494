// Carillon · AccountPausesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Storage
import Support
import Testing

@testable import Pipeline

/// Which apps a throttled account pauses, for how long, and what other dispatchers learn.
struct AccountPausesTests {
    /// A channel that no test sends through.
    private struct Way: ProviderChannel {
        let provider = Provider.fcm
        let app: String
        let account: String

        func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
            ProviderReply(.unanswered(reason: "unused", mayHaveBeenSent: false))
        }
    }

    private struct Bench {
        let channels = ChannelDirectory(
            [("default", "one"), ("sister", "one"), ("news", "two")].map {
                ChannelDirectory.Way(Way(app: $0.0, account: $0.1))
            })
        let health = ProviderHealth(.fcm, calls: 512, logger: TestLog.logger)
        let pauses: AccountPauses

        init() {
            self.pauses = AccountPauses(.fcm, health: self.health, channels: self.channels)
        }

        /// The apps that may not be called.
        func held(_ moment: Timestamp) -> [String] {
            self.channels.apps(of: .fcm).filter { app in
                guard self.health.admit(app, isShared: true, now: moment) == .yes else { return true }
                self.health.withdraw(app)
                return false
            }
        }
    }

    private static let now = Timestamp(seconds: 1_000)

    private static func at(_ seconds: Int64) -> Timestamp { self.now + .seconds(seconds) }

    private static func pause(_ seconds: Int64, provider: Provider = .fcm, _ account: String = "one")
        -> SendingPauses.Pause
    {
        SendingPauses.Pause(provider: provider, account: account, until: Self.at(seconds))
    }

    @Test("pauses all apps of an account when one is throttled, and no other account")
    func apps() {
        let bench = Bench()
        let told = bench.pauses.note("one", service: nil, until: Self.at(7), now: Self.now)
        #expect(told == Self.pause(7))
        #expect(bench.held(Self.now) == ["default", "sister"])
        #expect(bench.held(Self.at(6)) == ["default", "sister"])
        #expect(bench.held(Self.at(7)).isEmpty)
    }

    @Test("adopts pauses of other dispatchers; a later end wins and an earlier one shortens nothing")
    func learning() {
        let bench = Bench()
        _ = bench.pauses.note("one", service: nil, until: Self.at(7), now: Self.now)
        bench.pauses.learn([Self.pause(3), Self.pause(5, "two"), Self.pause(60, provider: .apns)], now: Self.at(1))
        #expect(bench.held(Self.at(4)) == ["default", "news", "sister"])
        #expect(bench.held(Self.at(6)) == ["default", "sister"])
        bench.pauses.learn([Self.pause(20)], now: Self.at(6))
        #expect(bench.pauses.note("one", service: nil, until: Self.at(10), now: Self.at(6)) == nil)
        #expect(bench.held(Self.at(19)) == ["default", "sister"])
        #expect(bench.held(Self.at(20)).isEmpty)
        // The pause has ended by the time it is learned.
        bench.pauses.learn([Self.pause(20)], now: Self.at(20))
        #expect(bench.held(Self.at(20)).isEmpty)
    }

    @Test("lifts an announced pause that an operator removed, but not one still being announced")
    func lifting() {
        let bench = Bench()
        // Redis keeps whole milliseconds.
        _ = bench.pauses.note(
            "one", service: nil, until: Self.at(70) + .microseconds(300), now: Self.now)
        bench.pauses.learn([], now: Self.at(1))
        #expect(bench.held(Self.at(1)) == ["default", "sister"], "the pause is still being announced")
        // A second pause, which is not lifted.
        bench.health.hold(["sister"], until: Self.at(90), now: Self.at(1))
        bench.pauses.learn([Self.pause(70), Self.pause(70, "two")], now: Self.at(2))
        #expect(bench.held(Self.at(2)) == ["default", "news", "sister"])
        bench.pauses.learn([Self.pause(70, "two"), Self.pause(70, provider: .apns)], now: Self.at(3))
        #expect(bench.held(Self.at(3)) == ["news", "sister"])
        #expect(bench.health.overviews(of: ["default"], now: Self.at(3))["default"]?.state == .probing)
        #expect(bench.pauses.untold(now: Self.at(3)).isEmpty, "the pause stays lifted")
        // The provider asks again.
        #expect(bench.pauses.note("one", service: nil, until: Self.at(60), now: Self.at(4)) == Self.pause(60))
        #expect(bench.held(Self.at(4)) == ["default", "news", "sister"])
    }

    @Test("caps a pause at 20 minutes, whatever the provider asks for")
    func longest() {
        let bench = Bench()
        #expect(bench.pauses.note("one", service: nil, until: Self.at(86_400), now: Self.now) == Self.pause(1_200))
        #expect(bench.held(Self.at(1_199)) == ["default", "sister"])
        #expect(bench.held(Self.at(1_200)).isEmpty)
        // The cap holds for the app that was answered, too.
        let reply = ProviderReply(.answered(.slowDown(reason: "HTTP_429", after: .seconds(86_400))))
        #expect(bench.health.admit("news", isShared: true, now: Self.now) == .yes)
        bench.health.note(reply, app: "news", since: Self.now, now: Self.now)
        #expect(bench.held(Self.at(1_199)).contains("news"))
        #expect(!bench.held(Self.at(1_200)).contains("news"))
    }

    @Test("pauses a new app of a paused account at the next look")
    func newApp() {
        let bench = Bench()
        bench.pauses.learn([Self.pause(7)], now: Self.now)
        bench.channels.replace(with: ChannelDirectory.Way(Way(app: "late", account: "one")))
        #expect(bench.held(Self.at(1)) == ["default", "sister"])
        bench.pauses.learn([Self.pause(7)], now: Self.at(1))
        #expect(bench.held(Self.at(1)) == ["default", "late", "sister"])
    }

    @Test("announces a pause once, at once when it grows by much, otherwise with the next look")
    func telling() {
        let bench = Bench()
        func note(_ until: Timestamp) -> SendingPauses.Pause? {
            bench.pauses.note("one", service: nil, until: until, now: Self.now)
        }
        #expect(note(Self.at(7)) == Self.pause(7))
        #expect(bench.pauses.untold(now: Self.now).isEmpty)
        // Many calls answered at once each ask for a little more.
        #expect(note(Self.at(7) + .milliseconds(5)) == nil)
        #expect(note(Self.at(8)) == nil)
        #expect(bench.pauses.untold(now: Self.now) == [Self.pause(8)])
        #expect(bench.pauses.untold(now: Self.now).isEmpty)
        #expect(note(Self.at(12)) == Self.pause(12))
        // Redis was unreachable.
        bench.pauses.takeBack([Self.pause(12)])
        #expect(bench.pauses.untold(now: Self.now) == [Self.pause(12)])
        // A dispatcher does not announce pauses that it learned.
        bench.pauses.learn([Self.pause(20)], now: Self.now)
        #expect(bench.pauses.untold(now: Self.now).isEmpty)
        bench.pauses.takeBack([Self.pause(20)])
        #expect(bench.pauses.untold(now: Self.at(20)).isEmpty, "it is over")
    }

    @Test("pauses one push service without pausing the others")
    func services() {
        let bench = Bench()
        let told = bench.pauses.note("one", service: "https://slow.example", until: Self.at(7), now: Self.now)
        #expect(told?.service == "https://slow.example")
        #expect(bench.held(Self.now).isEmpty)
        func admission(_ service: String) -> CircuitBreaker.Admission {
            bench.health.admit("sister", service: service, isShared: true, now: Self.now)
        }
        #expect(admission("https://slow.example") == .no(until: Self.at(7)))
        #expect(admission("https://other.example") == .yes)
    }

    @Test("keeps pauses beyond its capacity local until others end")
    func bound() {
        let bench = Bench()
        for number in 0..<AccountPauses.capacity {
            let until = Self.at(number == 0 ? 5 : 60)
            #expect(bench.pauses.note("one", service: "https://s\(number)", until: until, now: Self.now) != nil)
        }
        #expect(bench.pauses.note("one", service: "https://more", until: Self.at(60), now: Self.now) == nil)
        let admission = bench.health.admit("sister", service: "https://more", isShared: true, now: Self.now)
        #expect(admission == .no(until: Self.at(60)))
        #expect(bench.pauses.note("one", service: "https://more", until: Self.at(61), now: Self.at(6)) != nil)
    }
}
