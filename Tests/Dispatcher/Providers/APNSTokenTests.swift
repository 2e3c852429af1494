// Carillon · APNSTokenTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import FoundationEssentials
import Logging
import Sandbox
import Support
import Synchronization
import Testing

@testable import Providers

@Suite("APNs provider tokens", .timeLimit(.minutes(10)))
struct APNSTokenTests {
    /// Channels of one key with a manual clock.
    private final class Bench: Sendable {
        private let moment = Mutex(Messages.now)
        private let pem = P256.Signing.PrivateKey().pemRepresentation

        func pass(_ duration: Duration) {
            self.moment.withLock { $0 = $0 + duration }
        }

        var now: Timestamp { self.moment.withLock { $0 } }
        var date: Date { Date(timeIntervalSince1970: Double(self.now.seconds)) }

        /// Runs the body with two apps' channels, which never send.
        func with(_ body: (any HTTPProviderChannel, any HTTPProviderChannel) async throws -> Void) async throws {
            let logger = Logger(label: "apns")
            let transfers = TransferPool(
                configuration: TransferConfiguration(), allowsPrivateAddresses: true, logger: logger)
            let pem = self.pem
            let context = ChannelContext(
                transfers: transfers, now: { self.now }, logger: logger,
                read: { (_) throws(CredentialFault) in Array(pem.utf8) })
            var channels: [any HTTPProviderChannel] = []
            for topic in ["org.example.one", "org.example.two"] {
                let settings = ["key": "k.p8", "key_id": "KEY1234567", "team_id": "TEAM123456", "topic": topic]
                let channel = try await APNS.channel(
                    app: topic, settings: settings, shape: .standard, context: context)
                channels.append(try #require(channel as? any HTTPProviderChannel))
            }
            try await body(channels[0], channels[1])
            await transfers.shutdown()
        }
    }

    /// A channel whose first request was made earlier, like one that waited in the queue.
    private final class LateChannel: HTTPProviderChannel {
        private let channel: any HTTPProviderChannel
        private let early: Mutex<ProviderRequest?>

        init(_ channel: any HTTPProviderChannel, early: ProviderRequest) {
            self.channel = channel
            self.early = Mutex(early)
        }

        var provider: Provider { self.channel.provider }
        var app: String { self.channel.app }
        var transfer: TransferClient { self.channel.transfer }
        var now: @Sendable () -> Timestamp { self.channel.now }
        var timeout: Duration? { self.channel.timeout }

        func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
            let early = self.early.withLock { early in
                defer { early = nil }
                return early
            }
            if let early { return early }
            return try await self.channel.request(message, device: device)
        }

        func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
            self.channel.read(response, now: now)
        }

        func hasReplacedCredential(of request: ProviderRequest, refusedFor reason: String) async -> Bool {
            await self.channel.hasReplacedCredential(of: request, refusedFor: reason)
        }
    }

    private static func request(_ channel: any HTTPProviderChannel) async throws -> ProviderRequest {
        try await channel.request(Messages.make(), device: Messages.device(.apns, token: "a1b2"))
    }

    private static func token(_ channel: any HTTPProviderChannel) async throws -> String {
        let header = try await self.request(channel).headers.first { $0.name == "authorization" }
        return String(try #require(header).value.dropFirst("bearer ".count))
    }

    @Test("one token serves all apps of a key for 50 minutes and is renewed while still valid")
    func renewal() async throws {
        let bench = Bench()
        try await bench.with { one, two in
            let first = try await Self.token(one)
            #expect(try await Self.token(two) == first)
            bench.pass(.seconds(50 * 60 - 1))
            #expect(try await Self.token(one) == first)
            bench.pass(.seconds(1))
            let renewedAt = bench.now
            #expect(try await Self.token(one) == first, "it is valid for ten more minutes")
            try await eventually("there is a new token") { try await Self.token(one) != first }
            let second = try await Self.token(two)
            #expect(try await Self.token(one) == second)
            #expect(try SignedToken(second).claims["iat"]?.integer == renewedAt.seconds)
        }
    }

    @Test("a push whose token was replaced while it waited is sent once more, with the current token")
    func replaced() async throws {
        let clock = Bench()
        try await ProviderBench.with(.apns, change: { $0.clock = { clock.date } }, now: { clock.now }) { bench in
            let channel = try #require(bench.channel as? any HTTPProviderChannel)
            let early = try await Self.request(channel)
            #expect(await bench.send().isAccepted)
            clock.pass(.seconds(50 * 60))
            try await eventually("there is a new token") {
                try await Self.request(channel).credential != early.credential
            }
            #expect(await bench.send().isAccepted, "the connection has the new token")
            let device = bench.device()
            let late = LateChannel(channel, early: early)
            let reply = await late.send(ProviderBench.message(), to: device)
            #expect(reply.isAccepted, "\(reply)")
            #expect(bench.sandbox.received().last?.token == device.token)
            // A refusal of the current token is Apple's wish for a pause.
            let refused = bench.device("dead2a00")
            let refusal = await bench.channel.send(ProviderBench.message(), to: refused)
            #expect(refusal.reaction == .slowDown, "\(refusal)")
            #expect(bench.sandbox.faultAttempts()[refused.token] == 1)
        }
    }

    @Test("a token that is an hour old is never used")
    func expiry() async throws {
        let bench = Bench()
        try await bench.with { one, _ in
            let first = try await Self.token(one)
            bench.pass(.seconds(60 * 60))
            let second = try await Self.token(one)
            #expect(second != first)
            #expect(try SignedToken(second).claims["iat"]?.integer == bench.now.seconds)
        }
    }

    @Test("an ExpiredProviderToken answer renews the token after 20 minutes at the earliest, for any app")
    func leastAge() async throws {
        let bench = Bench()
        try await bench.with { one, two in
            let request = try await Self.request(one)
            let first = try await Self.token(one)
            bench.pass(.seconds(20 * 60 - 1))
            #expect(await !one.renewCredential(of: request))
            #expect(await !two.renewCredential(of: request))
            #expect(try await Self.token(two) == first)
            bench.pass(.seconds(1))
            #expect(await two.renewCredential(of: request))
            #expect(try await Self.token(one) != first)
        }
    }
}
