// Carillon · ConformanceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Sandbox
import Support
import Testing

@testable import Providers

/// The behaviour that all providers share, over real connections to a sandbox.
@Suite("Provider conformance", .timeLimit(.minutes(10)))
struct ConformanceTests {
    @Test("each kind has a unique name and a profile here, and gateways know it")
    func complete() {
        let providers = ProviderKinds.all.map { $0.provider }
        #expect(Set(providers).count == providers.count)
        #expect(Set(ProviderProfile.all.map(\.provider)) == Set(providers))
        #expect(Set(providers) == Set(Provider.all))
    }

    @Test("an accepted message has the provider's name for it", arguments: ProviderProfile.all)
    func accepted(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            let device = bench.device()
            let reply = await bench.channel.send(ProviderBench.message(), to: device)
            guard case .answered(.accepted(let id)) = reply.result else {
                Issue.record("\(reply)")
                return
            }
            let name = try #require(id)
            #expect(!name.isEmpty)
            // In a header or in the body, depending on the provider.
            #expect(reply.transcript?.contains(name) == true, "\(reply.transcript ?? "")")
            let received = try #require(bench.sandbox.received().first)
            #expect(bench.sandbox.received().count == 1)
            #expect(received.provider.rawValue == profile.provider.rawValue)
            #expect(device.token.contains(received.token))
            let payload = try JSONParser.parse(received.payload)
            #expect(profile.body(payload)?.contains("World") == true)
        }
    }

    @Test("each row of the answer table matches the provider's answers", arguments: ProviderProfile.all)
    func rows(profile: ProviderProfile) async throws {
        let rules = try profile.kind.rules
        #expect(Set(profile.rows.keys) == Set(rules.map(\.reason)))
        func check(_ rule: AnswerRule, _ bench: ProviderBench) async throws {
            let row = try #require(profile.rows[rule.reason])
            let reply = await bench.send(row.marker)
            // A new credential cannot be renewed.
            let expected = rule.reaction == .staleCredential ? .configuration : rule.reaction
            #expect(reply.reaction == expected, "\(rule.reason): \(reply)")
            guard case .answered(let answer) = reply.result else { return }
            #expect(answer.reason == rule.reason)
        }
        try await ProviderBench.with(profile) { bench in
            for rule in rules {
                let row = try #require(profile.rows[rule.reason], "no row for \(rule.reason)")
                if !row.marker.isEmpty { try await check(rule, bench) }
            }
            #expect(bench.sandbox.received().isEmpty)
        }
        for rule in rules where profile.rows[rule.reason]?.marker.isEmpty == true {
            try await ProviderBench.with(profile, try #require(profile.rows[rule.reason])) { bench in
                try await check(rule, bench)
                #expect(bench.sandbox.received().isEmpty)
            }
        }
    }

    @Test("answers beyond the table are read too, and redirects are not followed", arguments: ProviderProfile.all)
    func answers(profile: ProviderProfile) async throws {
        #expect(!profile.answers.isEmpty)
        try await ProviderBench.with(profile) { bench in
            for (marker, answer) in profile.answers {
                let reply = await bench.send(marker)
                #expect(reply.result == .answered(answer), "\(marker): \(reply)")
            }
            #expect(bench.sandbox.received().isEmpty)
        }
    }

    @Test("answers caused by other settings or servers are read too", arguments: ProviderProfile.all)
    func circumstances(profile: ProviderProfile) async throws {
        for (name, circumstance) in profile.circumstances {
            try await ProviderBench.with(profile, circumstance.row) { bench in
                let reply = await bench.send(circumstance.row.marker)
                #expect(reply.result == .answered(circumstance.answer), "\(name): \(reply)")
                #expect(bench.sandbox.received().isEmpty)
            }
        }
    }

    @Test(
        "a success by status counts with any body, even a cut one",
        arguments: ProviderProfile.all)
    func bareSuccesses(profile: ProviderProfile) async throws {
        guard !profile.bareSuccesses.isEmpty else { return }
        try await ProviderBench.with(profile) { bench in
            for marker in profile.bareSuccesses {
                let reply = await bench.send(marker)
                #expect(reply.result == .answered(.accepted(id: nil)), "\(marker) \(reply)")
            }
        }
    }

    @Test("a provider's delay is obeyed, in seconds or until a date", arguments: ProviderProfile.all)
    func delays(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            for marker in profile.delayed {
                let reply = await bench.send(marker)
                let delay = try #require(reply.delay, "\(marker)")
                #expect(reply.transcript?.contains("\nretry-after: ") == true, "\(marker) \(reply)")
                let wanted = Duration.seconds(ProviderBench.retryAfter)
                // A date has no fractions of a second.
                #expect(delay > wanted - .seconds(3) && delay <= wanted, "\(marker) \(delay)")
            }
        }
    }

    @Test("a meaningless answer is not a success, a dead token or our fault", arguments: ProviderProfile.all)
    func nonsense(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            for marker in profile.nonsense {
                let reply = await bench.send(marker)
                #expect(reply.reaction == .retry || reply.mayHaveBeenSent == true, "\(marker) \(reply)")
            }
            #expect(await bench.send().isAccepted, "the channel still works")
        }
    }

    @Test("transcripts hold no secret, even if the answer echoes one", arguments: ProviderProfile.all)
    func secrets(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            for marker in [""] + profile.nonsense {
                let shown = "\(await bench.send(marker))"
                // Prefixes of Google's access tokens and of our signed tokens, shared secrets, and
                // a private key.
                for secret in ["ya29.", "eyJ", bench.sandbox.webhookSecret, "pass:word", "pass%3A", "PRIVATE KEY"] {
                    #expect(!shown.contains(secret), "\(marker)")
                }
            }
        }
    }

    @Test("a silent or cut-off provider may have the message", arguments: ProviderProfile.all)
    func unanswered(profile: ProviderProfile) async throws {
        let silent = try await valueInTime("the silent provider has the message") { limit in
            try await ProviderBench.with(profile, timeout: limit) { bench -> ProviderReply? in
                let reply = await bench.send(profile.silent)
                guard !bench.sandbox.faultAttempts().isEmpty else { return nil }
                #expect(bench.sandbox.received().isEmpty)
                try await eventually("the channel still works") { await bench.send().isAccepted }
                return reply
            }
        }
        #expect(silent.result == .unanswered(reason: "timeout", mayHaveBeenSent: true))
        try await ProviderBench.with(profile) { bench in
            let cut = await bench.send(profile.cut)
            #expect(cut.mayHaveBeenSent == true, "\(cut)")
            if let early = profile.cutEarly {
                let reply = await bench.send(early)
                #expect(reply.mayHaveBeenSent == false, "\(reply)")
            }
            if let reset = profile.reset {
                let reply = await bench.send(reset)
                #expect(reply.result == .unanswered(reason: "streamReset", mayHaveBeenSent: true))
            }
            #expect(bench.sandbox.received().isEmpty)
            if let refused = profile.refused { #expect(await bench.send(refused).isAccepted) }
            #expect(await bench.send().isAccepted, "the channel still works")
        }
    }

    @Test("an absent provider does not have the message", arguments: ProviderProfile.all)
    func absent(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            // Fetches a credential if the provider needs one.
            #expect(await bench.send().isAccepted)
            let device = bench.device()
            try await bench.sandbox.stopListening()
            // The first request may use an existing connection.
            let first = await bench.channel.send(ProviderBench.message(), to: device)
            #expect(first.mayHaveBeenSent != nil, "\(first)")
            let second = await bench.channel.send(ProviderBench.message(), to: device)
            #expect(second.mayHaveBeenSent == false, "\(second)")
        }
    }

    @Test("a host with another host's certificate gets nothing", arguments: ProviderProfile.all)
    func certificate(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) {
            $0.host = "127.0.0.2"
        } _: { bench in
            let reply = await bench.send()
            // If a credential is requested first, that host's certificate fails.
            let reasons = ["tls", "token_endpoint_tls"]
            #expect(
                reasons.contains { reply.result == .unanswered(reason: $0, mayHaveBeenSent: false) }, "\(reply)")
            #expect(bench.sandbox.received().isEmpty)
        }
    }

    @Test("a message that may no longer start when its turn comes is not sent", arguments: ProviderProfile.all)
    func fenced(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            var message = ProviderBench.message()
            message.mayStart = { false }
            let reply = await bench.channel.send(message, to: bench.device())
            #expect(reply.result == .fenced)
            #expect(bench.sandbox.received().isEmpty)
        }
    }

    @Test("an HTTP/1.1 server is accepted, except for Apple", arguments: ProviderProfile.all)
    func oldHTTP(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) {
            $0.speaksHTTP1Only = true
        } _: { bench in
            let reply = await bench.send()
            guard profile.needsHTTP2 else {
                #expect(reply.isAccepted, "\(reply)")
                return
            }
            #expect(reply.result == .answered(.retry(reason: "not_http2", after: nil)))
            #expect(bench.sandbox.received().isEmpty)
        }
    }

    @Test("GOAWAY to a hundred requests loses none, and no refused one was accepted", arguments: ProviderProfile.all)
    func goAway(profile: ProviderProfile) async throws {
        guard let marker = profile.goAway else { return }
        try await ProviderBench.with(profile) { bench in
            #expect(await bench.send().isAccepted, "the connection is open")
            let devices = [bench.device(marker)] + (0..<99).map { _ in bench.device() }
            func sendAll(_ devices: [Device]) async -> [Device] {
                await withTaskGroup(of: Device?.self) { group in
                    for device in devices {
                        group.addTask {
                            let reply = await bench.channel.send(ProviderBench.message(), to: device)
                            if reply.isAccepted { return nil }
                            #expect(reply.mayHaveBeenSent != nil, "\(reply)")
                            return device
                        }
                    }
                    return await group.reduce(into: []) { if let device = $1 { $0.append(device) } }
                }
            }
            // libcurl resends some requests itself.
            let refused = await sendAll(devices)
            #expect(await sendAll(refused).isEmpty)
            let counts = Dictionary(grouping: bench.sandbox.received(), by: \.token).mapValues(\.count)
            #expect(counts.count == 101)
            // At most once more, if the connection broke after the answer.
            #expect(counts.values.allSatisfy { $0 <= 2 })
        }
    }
}
