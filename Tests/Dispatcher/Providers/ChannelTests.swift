// Carillon · ChannelTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Support
import Testing

@testable import Clients
@testable import Core
@testable import Providers

/// Which Apple host a push uses.
@Suite("APNs channel", .timeLimit(.minutes(10)))
struct APNSChannelTests {
    private static func url(_ environment: ProviderEnvironment, endpoint: String?) async throws -> String {
        try await ProviderSandbox.with { sandbox in
            try await ProviderBench.withContext(sandbox) { context in
                var settings = ProviderProfile.apns.settings(sandbox)
                settings["endpoint"] = endpoint
                let channel = try await APNS.channel(
                    app: "default", settings: settings, shape: .standard, context: context)
                let way = try #require(channel as? any HTTPProviderChannel)
                var device = Messages.device(.apns, token: "a1b2")
                device.environment = environment
                return try await way.request(Messages.make(), device: device).url
            }
        }
    }

    @Test(
        "a device uses Apple's host for its environment",
        arguments: [
            (ProviderEnvironment.production, "api.push.apple.com"), (.sandbox, "api.sandbox.push.apple.com"),
        ]
    )
    func environments(environment: ProviderEnvironment, host: String) async throws {
        let url = try await Self.url(environment, endpoint: nil)
        #expect(url == "https://\(host)/3/device/a1b2")
    }

    @Test("an endpoint setting replaces both hosts", arguments: [ProviderEnvironment.production, .sandbox])
    func endpoint(environment: ProviderEnvironment) async throws {
        let url = try await Self.url(environment, endpoint: "https://apns.example")
        #expect(url == "https://apns.example/3/device/a1b2")
    }
}

/// The behaviour of FCM beyond what all providers share, over real connections.
@Suite("FCM channel", .timeLimit(.minutes(10)))
struct FCMChannelTests {
    @Test("a topic token sends to the topic, within the topic's limit")
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

    @Test("a tap requests an intent action only if the app's settings name one")
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

/// The behaviour of e-mail beyond what all providers share.
@Suite("E-mail channel", .timeLimit(.minutes(10)))
struct EmailChannelTests {
    @Test("the relay has half of a mail's time to get ready for it; the other half may pass in our queue")
    func connectTimeout() {
        #expect(MailConfiguration().connectTimeout == EmailChannel.patience / 2)
    }

    @Test("a transcript hides the address even before a combining mark")
    func address() async throws {
        try await ProviderBench.with(.email) { bench in
            let reply = await bench.send("disabled-")
            #expect(reply.transcript == "550 5.2.1 …\u{301} is disabled")
        }
    }

    @Test("a mail that timed out in the queue says nothing about the relay")
    func noTurn() async throws {
        try await ProviderSandbox.with { sandbox in
            var configuration = MailConfiguration()
            configuration.caFile = sandbox.caPath
            configuration.connections = 1
            let client = try MailClient(relay: MailRelay(url: sandbox.smtpURL), configuration: configuration)
            defer { client.shutdown() }
            let sender = try EmailSender("notices@example.com")
            let hanging = EmailChannel(app: "default", sender: sender, client: client) { _ in nil }
            let holder = Task {
                await hanging.send(Messages.make(), to: Messages.device(.email, token: "silent-1@example.com"))
            }
            try await eventually("the relay has one mail") {
                client.snapshot().opened == 1 && client.snapshot().waiting == 0
            }
            let hasty = EmailChannel(
                app: "default", sender: sender, client: client, timeout: .milliseconds(50)
            ) { _ in nil }
            let reply = await hasty.send(Messages.make(), to: Messages.device(.email, token: "ada@example.com"))
            #expect(reply.result == .noTurn)
            #expect(reply.advice(of: .email)?.contains("too much") == true)
            holder.cancel()
            _ = await holder.value
            #expect(sandbox.received().isEmpty)
        }
    }
}
