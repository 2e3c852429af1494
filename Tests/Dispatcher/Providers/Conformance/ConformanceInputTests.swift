// Carillon · ConformanceInputTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Sandbox
import Testing

/// Bad input to every provider: tokens, texts, data, settings, files.
@Suite("Provider conformance: bad input", .timeLimit(.minutes(10)))
struct ConformanceInputTests {
    @Test("a token with control characters is sent nowhere", arguments: ProviderProfile.all)
    func controlCharacters(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            let good = bench.device().token
            for token in ["", "\u{0}" + good, good + "\r\nx-evil: 1", good + "\u{8}", "\u{1B}[2J", good + "\u{7F}"] {
                let reply = await bench.channel.send(ProviderBench.message(), to: bench.device(token: token))
                #expect(reply.reaction == .refused || reply.reaction == .deadToken, "\(reply)")
                // Without an answer there is no reason to refer to.
                if reply.transcript == "not sent" {
                    if case .answered = reply.result { Issue.record("there was no answer: \(reply)") }
                    #expect(reply.advice(of: profile.provider)?.contains("see the reason") == false, "\(reply)")
                }
            }
            #expect(bench.sandbox.received().isEmpty)
            #expect(await bench.send().isAccepted, "the channel still works")
        }
    }

    @Test(
        "a subscription whose endpoint no request can reach is refused, not retried",
        arguments: ["push.example:99999", "push.example:x", "push.{example}"])
    func endpoints(host: String) async throws {
        try await ProviderBench.with(.webpush) { bench in
            let token = bench.device().token.replacing(bench.sandbox.url, with: "https://\(host)")
            let reply = await bench.channel.send(ProviderBench.message(), to: bench.device(token: token))
            #expect(reply.result == .unsendable(reason: "token_malformed"), "\(reply)")
            #expect(bench.sandbox.received().isEmpty)
        }
    }

    @Test("a long text is cut between characters, wherever the cut falls", arguments: ProviderProfile.all)
    func longText(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            for pad in 0..<8 {
                let text = String(repeating: "x", count: pad) + String(repeating: "👩‍👩‍👧é🎉", count: 320)
                #expect(text.utf8.count > 5_000)
                let reply = await bench.send { $0.body = text }
                #expect(reply.isAccepted, "\(reply)")
                let payload = try JSONParser.parse(try #require(bench.sandbox.received().last).payload)
                let shown = try #require(profile.body(payload))
                guard !shown.contains(text) else { continue }
                #expect(shown.hasSuffix("…") && text.hasPrefix(shown.dropLast()), "pad \(pad)")
                #expect(shown.utf8.count > 2_000, "no more is cut than necessary")
            }
        }
    }

    @Test("data with every kind of value is sent", arguments: ProviderProfile.all)
    func data(profile: ProviderProfile) async throws {
        let values = #"{"n":1,"f":-1.5e3,"b":true,"z":null,"o":{"a":[1,"🎉"]},"from":"x","gcm.x":2,"aps":{},"":"e"}"#
        try await ProviderBench.with(profile) { bench in
            let reply = await bench.send { $0.data = Array(values.utf8) }
            #expect(reply.isAccepted, "\(reply)")
        }
    }

    @Test("an expiry thousands of years ahead is accepted", arguments: ProviderProfile.all)
    func farEnd(profile: ProviderProfile) async throws {
        let end = try #require(Timestamp(rfc3339: "9999-12-31T23:59:59Z"))
        try await ProviderBench.with(profile) { bench in
            var message = ProviderBench.message()
            message.notification.expiresAt = end
            let reply = await bench.channel.send(message, to: bench.device())
            #expect(reply.isAccepted, "\(reply)")
        }
    }

    @Test("a retraction is accepted", arguments: ProviderProfile.all)
    func retraction(profile: ProviderProfile) async throws {
        guard profile.takesAway else { return }
        try await ProviderBench.with(profile) { bench in
            for key in [nil, "order 5", "é", String(repeating: "k", count: 200)] {
                var message = ProviderBench.message { $0.collapseKey = key }
                message.purpose = .retract
                let reply = await bench.channel.send(message, to: bench.device())
                #expect(reply.isAccepted, "\(reply)")
            }
        }
    }

    @Test("a missing setting is named or optional", arguments: ProviderProfile.all)
    func settings(profile: ProviderProfile) async throws {
        try await ProviderSandbox.with { sandbox in
            try await ProviderBench.withContext(sandbox) { context in
                let whole = profile.settings(sandbox)
                let known = try profile.kind.settings
                #expect(Set(whole.keys).isSubset(of: known))
                var needed = 0
                for name in whole.keys {
                    var settings = whole
                    settings[name] = nil
                    do throws(CredentialFault) {
                        _ = try await Self.channel(profile, settings, context)
                    } catch {
                        needed += 1
                        #expect(error == CredentialFault("is missing", setting: name))
                    }
                }
                #expect(needed > 0)
            }
        }
    }

    private static func channel(
        _ profile: ProviderProfile, _ settings: [String: String], _ context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        guard let kind = ProviderKinds.kind(of: profile.provider) else { throw CredentialFault("no kind") }
        return try await kind.channel(app: "default", settings: settings, shape: .standard, context: context)
    }

    @Test("a broken file or one of the wrong kind is named but not quoted", arguments: ProviderProfile.all)
    func files(profile: ProviderProfile) async throws {
        let secret = "hunter2-hunter2-hunter2"
        let contents = [secret, "", "-----BEGIN PRIVATE KEY-----\n\(secret)\n-----END PRIVATE KEY-----\n"]
        try await ProviderSandbox.with { sandbox in
            var whole = profile.settings(sandbox)
            profile.withoutSecrets?(&whole)
            let wrong = profile.withoutSecrets == nil ? contents : contents.filter { $0 != secret }
            for name in try profile.kind.files {
                if profile.withoutSecrets != nil { whole[name] = "secret-\(name)" }
                let settings = whole
                let path = try #require(settings[name])
                for text in wrong + profile.wrongFiles {
                    try await ProviderBench.withContext(
                        sandbox,
                        read: { (asked) throws(CredentialFault) in
                            asked == path ? Array(text.utf8) : try ProviderBench.contents(asked)
                        }
                    ) { context in
                        do throws(CredentialFault) {
                            _ = try await Self.channel(profile, settings, context)
                            Issue.record("\(text.prefix(40)) was accepted as a key")
                        } catch {
                            #expect(error.setting == name)
                            #expect(!"\(error)".contains("hunter2") && !"\(error)".contains("BEGIN"))
                        }
                    }
                }
                try await ProviderBench.withContext(
                    sandbox, read: { (_) throws(CredentialFault) in throw CredentialFault("the file cannot be read") }
                ) { context in
                    do throws(CredentialFault) {
                        _ = try await Self.channel(profile, settings, context)
                        Issue.record("a missing file was read")
                    } catch {
                        #expect(error.setting == name)
                    }
                }
            }
        }
    }
}
