// Carillon · APNSChannelTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Sandbox
import Testing

/// Where Apple's pushes go.
@Suite("The way to APNs", .timeLimit(.minutes(10)))
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
        "A device goes to Apple's host for its environment, whose tokens the other does not know",
        arguments: [
            (ProviderEnvironment.production, "api.push.apple.com"), (.sandbox, "api.sandbox.push.apple.com"),
        ]
    )
    func environments(environment: ProviderEnvironment, host: String) async throws {
        let url = try await Self.url(environment, endpoint: nil)
        #expect(url == "https://\(host)/3/device/a1b2")
    }

    @Test("An endpoint is in place of both", arguments: [ProviderEnvironment.production, .sandbox])
    func endpoint(environment: ProviderEnvironment) async throws {
        let url = try await Self.url(environment, endpoint: "https://apns.example")
        #expect(url == "https://apns.example/3/device/a1b2")
    }
}
