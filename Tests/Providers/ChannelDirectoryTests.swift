// Carillon · ChannelDirectoryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Providers
import Testing

struct ChannelDirectoryTests {
    private struct Channel: ProviderChannel {
        let provider: Provider
        let app: String

        func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
            ProviderReply(.answered(.accepted(id: nil)))
        }
    }

    @Test("a new app of a provider that there was at the start is served, one of another is not")
    func replace() {
        let directory = ChannelDirectory([ChannelDirectory.Way(Channel(provider: .fcm, app: "default"))])
        #expect(directory.replace(with: ChannelDirectory.Way(Channel(provider: .fcm, app: "news"))))
        #expect(directory.apps(of: .fcm) == ["default", "news"])
        // Nobody reads its streams.
        #expect(!directory.replace(with: ChannelDirectory.Way(Channel(provider: .apns, app: "news"))))
        #expect(!directory.has(.apns))
        #expect(directory.way(.apns, app: "news") == nil)
        // All apps of a provider may go and come back.
        directory.remove(.fcm, app: "default")
        directory.remove(.fcm, app: "news")
        #expect(directory.replace(with: ChannelDirectory.Way(Channel(provider: .fcm, app: "news"))))
        #expect(directory.has(.fcm))
    }
}
