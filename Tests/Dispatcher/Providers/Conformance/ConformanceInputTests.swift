// Carillon · ConformanceInputTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Sandbox
import Testing

/// What every provider does with bad input: tokens, texts, data, settings, files.
@Suite("Bad input to every provider", .timeLimit(.minutes(10)))
struct ConformanceInputTests {
    @Test("A token with control characters goes nowhere, and says nothing else", arguments: ProviderProfile.all)
    func controlCharacters(profile: ProviderProfile) async throws {
        try await ProviderBench.with(profile) { bench in
            let good = bench.device().token
            for token in ["", "\u{0}" + good, good + "\r\nx-evil: 1", good + "\u{8}", "\u{1B}[2J", good + "\u{7F}"] {
                let reply = await bench.channel.send(ProviderBench.message(), to: bench.device(token: token))
                #expect(reply.reaction == .refused || reply.reaction == .deadToken, "\(reply)")
                // There is no answer beside it that could say more.
                if reply.transcript == "not sent" {
                    if case .answered = reply.result { Issue.record("nobody answered: \(reply)") }
                    #expect(reply.advice(of: profile.provider)?.contains("see the reason") == false, "\(reply)")
                }
            }
            #expect(bench.sandbox.received().isEmpty)
            #expect(await bench.send().isAccepted, "it goes on")
        }
    }

    @Test("A text that is too long is cut between characters, wherever the cut falls", arguments: ProviderProfile.all)
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
                #expect(shown.utf8.count > 2_000, "no more than has to go")
            }
        }
    }

    @Test("Data of all kinds of values goes out", arguments: ProviderProfile.all)
    func data(profile: ProviderProfile) async throws {
        let values = #"{"n":1,"f":-1.5e3,"b":true,"z":null,"o":{"a":[1,"🎉"]},"from":"x","gcm.x":2,"aps":{},"":"e"}"#
        try await ProviderBench.with(profile) { bench in
            let reply = await bench.send { $0.data = Array(values.utf8) }
            #expect(reply.isAccepted, "\(reply)")
        }
    }

    @Test("An end that is thousands of years off is taken", arguments: ProviderProfile.all)
    func farEnd(profile: ProviderProfile) async throws {
        let end = try #require(Timestamp(rfc3339: "9999-12-31T23:59:59Z"))
        try await ProviderBench.with(profile) { bench in
            var message = ProviderBench.message()
            message.notification.expiresAt = end
            let reply = await bench.channel.send(message, to: bench.device())
            #expect(reply.isAccepted, "\(reply)")
        }
    }

    @Test("What takes a notification away is taken too", arguments: ProviderProfile.all)
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

    @Test("A setting that is missing is named, or can be done without", arguments: ProviderProfile.all)
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

    @Test("A file that is broken, or of the wrong kind, is named and not told", arguments: ProviderProfile.all)
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
                            Issue.record("\(text.prefix(40)) was taken for a key")
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
                        Issue.record("a file that is not there was read")
                    } catch {
                        #expect(error.setting == name)
                    }
                }
            }
        }
    }
}
