// Carillon · FCMChannelTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Sandbox
import Testing

/// What FCM alone has, over real connections.
@Suite("The way to FCM", .timeLimit(.minutes(10)))
struct FCMChannelTests {
    @Test("A topic gets what is sent to its token, within its own limit")
    func topic() async throws {
        try await ProviderBench.with(.fcm) { bench in
            let message = ProviderBench.message { $0.body = String(repeating: "b", count: 4_000) }
            let reply = await bench.channel.send(message, to: bench.device(token: "/topics/news"))
            #expect(reply.isAccepted, "\(reply)")
            let received = try #require(bench.sandbox.received().first)
            let sent = try JSONParser.parse(received.payload)["message"]
            #expect(sent?["topic"]?.string == "news")
            #expect(sent?["token"] == nil)
        }
    }

    @Test("The app's settings name the intent action of a tap; without, none is asked for")
    func clickAction() async throws {
        for action in ["category", nil] {
            let row = ProviderProfile.Row(settings: { settings, _ in settings["click_action"] = action })
            try await ProviderBench.with(.fcm, row) { bench in
                let reply = await bench.send { $0.category = "payments" }
                #expect(reply.isAccepted, "\(reply)")
                let received = try #require(bench.sandbox.received().first)
                let shown = try JSONParser.parse(received.payload)["message"]?["android"]?["notification"]
                #expect(shown?["tag"] != nil)
                #expect(shown?["click_action"]?.string == action.map { _ in "payments" })
            }
        }
    }
}
