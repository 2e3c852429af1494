// Carillon · ProviderReplyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Support
import Testing

@testable import Providers

/// Transcripts of answers, for people.
@Suite("Transcripts", .timeLimit(.minutes(10)))
struct TranscriptTests {
    private static let secret = "0123456789abcdefghijklmnopqrstuv"

    /// A channel to a server with a scripted answer.
    private struct StubChannel: HTTPProviderChannel {
        let provider = Provider.webhook
        let app = "default"
        let transfer: TransferClient
        let url: String
        let timeout: Duration? = .seconds(20)
        let now: @Sendable () -> Timestamp = { Messages.now }

        func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
            ProviderRequest(
                url: self.url, headers: [("authorization", "Bearer \(TranscriptTests.secret)")], body: [])
        }

        func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
            .refused(reason: "HTTP_\(response.status)")
        }
    }

    private static func transcript(of body: String) async throws -> String {
        try await HTTPStub.with(HTTPStub.Answer(status: 400, body: body)) { stub in
            var configuration = TransferConfiguration()
            configuration.allowPlainHTTP = true
            let client = try TransferClient(configuration: configuration, logger: Logger(label: "transcripts"))
            let channel = StubChannel(transfer: client, url: stub.url)
            let reply = await channel.send(Messages.make(), to: Messages.device(.webhook, token: "a"))
            await client.shutdown()
            return try #require(reply.transcript)
        }
    }

    @Test("a long body is cut between characters and states the missing bytes")
    func long() async throws {
        let whole = String(repeating: "x", count: 2_048)
        #expect(try await Self.transcript(of: whole) == "HTTP/1.1 400\n\n" + whole)
        let start = String(repeating: "x", count: 2_047)
        let long = try await Self.transcript(of: start + "é" + String(repeating: "y", count: 100))
        #expect(long == "HTTP/1.1 400\n\n" + start + "… (102 bytes more)")
    }

    @Test("shows U+0000, which JSON from outside may not hold, as a replacement character")
    func nul() async throws {
        #expect(try await Self.transcript(of: "a\0b") == "HTTP/1.1 400\n\na\u{FFFD}b")
    }

    @Test("hides an echoed credential even before a combining mark")
    func markedSecret() async throws {
        let shown = try await Self.transcript(of: "<\(Self.secret)\u{301}>")
        #expect(shown == "HTTP/1.1 400\n\n<…\u{301}>")
    }

    @Test("the cut leaves no part of an echoed credential")
    func secretAtTheCut() async throws {
        let body = String(repeating: "x", count: 2_030) + Self.secret + String(repeating: "y", count: 100)
        let shown = try await Self.transcript(of: body)
        #expect(!shown.contains("0123"))
        #expect(shown.hasSuffix("bytes more)"))
    }
}

@Suite("Advice", .timeLimit(.minutes(10)))
struct ProviderAdviceTests {
    @Test(
        "our own refusals have advice",
        arguments: [
            ("token_malformed", Provider.apns, "register it again"),
            ("no_subscription", Provider.webpush, "JSON.stringify"),
            ("origin_not_allowed", Provider.webpush, "WEBPUSH_ORIGINS"),
            ("bad_subscription_key", Provider.webpush, "subscribe again"),
            ("private_address", Provider.webpush, "private address"),
            ("too_large:title", Provider.apns, "shorten"), ("too_large:platform.apns", Provider.apns, "shorten"),
            ("too_large", Provider.webpush, "shorten"),
            ("bad_address", Provider.email, "set again"), ("bad_field:From", Provider.email, "SMTP_FROM"),
        ])
    func refusals(reason: String, provider: Provider, words: String) {
        let reply = ProviderReply(.unsendable(reason: reason), transcript: "not sent")
        #expect(reply.advice(of: provider)?.contains(words) == true)
    }

    @Test("meaningless answers and token outages have advice")
    func others() {
        func advice(_ result: ProviderReply.Result) -> String? { ProviderReply(result).advice(of: .apns) }
        #expect(advice(.answered(.retry(reason: "not_http2", after: nil)))?.contains("proxy") == true)
        #expect(advice(.answered(.retry(reason: "answer_cut:404", after: nil)))?.contains("ended before") == true)
        #expect(advice(.unanswered(reason: "not_understood", mayHaveBeenSent: true))?.contains("proxy") == true)
        #expect(
            advice(.unanswered(reason: "token_endpoint_503", mayHaveBeenSent: false))?.contains("token endpoint")
                == true)
        #expect(advice(.unanswered(reason: "connect", mayHaveBeenSent: false))?.contains("cannot be reached") == true)
        #expect(advice(.answered(.refused(reason: "NewWord")))?.contains("documentation") == true)
        #expect(advice(.answered(.accepted(id: nil))) == nil)
    }
}
