// Carillon · ChannelDirectoryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Providers

struct ChannelDirectoryTests {
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
        directory.remove(.fcm, app: "default")
        directory.remove(.fcm, app: "news")
        #expect(directory.replace(with: ChannelDirectory.Entry(FakeChannel(app: "news"))))
        #expect(directory.has(.fcm))
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
        directory.remove(.fcm, app: "late")
        directory.remove(.fcm, app: "sister")
        #expect(try ["default", "silent"].map { try rate($0) } == [500, 500])
        #expect(directory.rateConflicts.isEmpty, "an app without a rate is no conflict")
        directory.remove(.fcm, app: "default")
        #expect(try rate("silent") == nil)
    }
}
