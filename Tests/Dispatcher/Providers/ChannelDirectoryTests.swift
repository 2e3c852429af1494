// Carillon · ChannelDirectoryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Providers

struct ChannelDirectoryTests {
    /// Leaves only these apps of FCM.
    private static func keep(_ apps: Set<String>, _ directory: ChannelDirectory) {
        for _ in 0..<2 { _ = directory.retain([.fcm: apps]) }
    }

    @Test("a new app is served if its provider existed at the start")
    func replace() {
        let directory = ChannelDirectory([ChannelDirectory.Entry(FakeChannel(app: "default"))])
        #expect(directory.replace(with: ChannelDirectory.Entry(FakeChannel(app: "news"))))
        #expect(directory.apps(of: .fcm) == ["default", "news"])
        // This process does not read the provider's streams.
        #expect(!directory.replace(with: ChannelDirectory.Entry(FakeChannel(provider: .apns, app: "news"))))
        #expect(!directory.has(.apns))
        #expect(directory.entry(.apns, app: "news") == nil)
        // All apps of a provider may be removed and return.
        Self.keep([], directory)
        #expect(!directory.has(.fcm))
        #expect(directory.replace(with: ChannelDirectory.Entry(FakeChannel(app: "news"))))
        #expect(directory.has(.fcm))
    }

    @Test("an app is removed only if it is missing twice in a row")
    func retain() {
        let directory = ChannelDirectory(["default", "news"].map { ChannelDirectory.Entry(FakeChannel(app: $0)) })
        let all: [Provider: Set<String>] = [.fcm: ["default", "news"]]
        let cut: [Provider: Set<String>] = [.fcm: ["default"]]
        for apps in [cut, all, cut] { #expect(directory.retain(apps).isEmpty) }
        #expect(directory.apps(of: .fcm) == ["default", "news"])
        #expect(directory.retain(cut).map { "\($0.provider.rawValue) \($0.app)" } == ["fcm news"])
        #expect(directory.retain(cut).isEmpty)
        #expect(directory.apps(of: .fcm) == ["default"])
    }

    @Test(
        "a foreign token is dead only once the provider has accepted a device's message with the credentials",
        arguments: [
            (Provider.fcm, "SENDER_ID_MISMATCH"), (.apns, "DeviceTokenNotForTopic"), (.apns, "BadDeviceToken"),
        ])
    func proof(provider: Provider, reason: String) throws {
        let foreign = ProviderAnswer.deadToken(reason: reason, evidence: nil)
        let doubted = ProviderAnswer.configuration(reason: reason, concernsAll: false)
        let directory = ChannelDirectory([ChannelDirectory.Entry(FakeChannel(provider: provider))])
        func judged(_ answer: ProviderAnswer, token: String = "phone") throws -> ProviderReply.Result {
            var device = TestDispatcher.phone(token: token)
            device.provider = provider
            let entry = try #require(directory.entry(for: device))
            return entry.judged(ProviderReply(.answered(answer)), of: device).result
        }
        #expect(try judged(foreign) == .answered(doubted))
        let dead = ProviderAnswer.deadToken(reason: "UNREGISTERED", evidence: nil)
        #expect(try judged(dead) == .answered(dead), "such a token is dead with any credentials")
        if provider == .fcm {
            #expect(try judged(.accepted(id: "1"), token: "/topics/news") == .answered(.accepted(id: "1")))
            #expect(try judged(foreign) == .answered(doubted), "every project has topics")
        }
        #expect(try judged(.accepted(id: "2")) == .answered(.accepted(id: "2")))
        #expect(try judged(foreign) == .answered(foreign))
        // Reloaded credentials may be others.
        directory.replace(with: ChannelDirectory.Entry(FakeChannel(provider: provider)))
        #expect(try judged(foreign) == .answered(doubted))
    }

    @Test(
        "acceptance in one environment of APNs proves nothing about tokens of the other",
        arguments: [(Provider.apns, "BadDeviceToken"), (.fcm, "SENDER_ID_MISMATCH")])
    func proofOfEnvironment(provider: Provider, reason: String) {
        let foreign = ProviderAnswer.deadToken(reason: reason, evidence: nil)
        let doubted = ProviderAnswer.configuration(reason: reason, concernsAll: false)
        let entry = ChannelDirectory.Entry(FakeChannel(provider: provider))
        func judged(_ answer: ProviderAnswer, in environment: ProviderEnvironment) -> ProviderReply.Result {
            var device = TestDispatcher.phone()
            device.provider = provider
            device.environment = environment
            return entry.judged(ProviderReply(.answered(answer)), of: device).result
        }
        _ = judged(.accepted(id: "1"), in: .production)
        #expect(judged(foreign, in: .production) == .answered(foreign))
        // Other providers have one environment.
        #expect(judged(foreign, in: .sandbox) == .answered(provider == .apns ? doubted : foreign))
        _ = judged(.accepted(id: "2"), in: .sandbox)
        #expect(judged(foreign, in: .sandbox) == .answered(foreign))
    }

    @Test(
        "a relay that has accepted a mail refuses only the recipient; a push service may still reject the key",
        arguments: [Provider.email, .webpush])
    func proofOfRelay(provider: Provider) {
        let doubted = ProviderAnswer.configuration(reason: "SMTP_554_5.7.1", concernsAll: false)
        let refused = ProviderAnswer.refused(reason: "SMTP_554_5.7.1")
        let entry = ChannelDirectory.Entry(FakeChannel(provider: provider))
        var device = TestDispatcher.phone()
        device.provider = provider
        func judged(_ answer: ProviderAnswer) -> ProviderReply.Result {
            entry.judged(ProviderReply(.answered(answer)), of: device).result
        }
        #expect(judged(doubted) == .answered(doubted))
        #expect(judged(.accepted(id: nil)) == .answered(.accepted(id: nil)))
        #expect(judged(doubted) == .answered(provider == .email ? refused : doubted))
    }

    @Test("an account's rate is the lowest of its current apps")
    func rates() throws {
        func entry(
            _ app: String,
            _ account: String,
            _ rate: Int?,
            _ provider: Provider = .fcm
        ) -> ChannelDirectory.Entry {
            ChannelDirectory.Entry(
                FakeChannel(provider: provider, app: app, account: account), messagesPerSecond: rate)
        }
        let directory = ChannelDirectory([
            entry("default", "one", 500), entry("sister", "one", 20), entry("silent", "one", nil),
            entry("news", "two", 90), entry("default", "one", nil, .apns),
        ])
        func rate(_ app: String, _ provider: Provider = .fcm) throws -> Int? {
            directory.messagesPerSecond(of: try #require(directory.entry(provider, app: app)))
        }
        #expect(try ["default", "sister", "silent", "news"].map { try rate($0) } == [20, 20, 20, 90])
        #expect(try rate("default", .apns) == nil)
        let conflict = ChannelDirectory.RateConflict(
            provider: .fcm, account: "one", rates: ["default": 500, "sister": 20])
        #expect(directory.rateConflicts == [conflict])

        directory.replace(with: entry("late", "one", 5))
        #expect(try rate("default") == 5)
        Self.keep(["default", "silent", "news"], directory)
        #expect(try ["default", "silent"].map { try rate($0) } == [500, 500])
        #expect(directory.rateConflicts.isEmpty, "an app without a rate is no conflict")
        Self.keep(["silent", "news"], directory)
        #expect(try rate("silent") == nil)
    }
}
