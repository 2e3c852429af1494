// Carillon · TranscriptTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Support
import Testing

/// What is shown of an answer.
@Suite("Transcripts", .timeLimit(.minutes(10)))
struct TranscriptTests {
    private static let secret = "0123456789abcdefghijklmnopqrstuv"

    /// A way to a server that says what the test wants.
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

        func renewCredential(of request: ProviderRequest) async -> Bool { false }
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

    @Test("A body that is too long ends with how much more there was, cut between characters")
    func long() async throws {
        let whole = String(repeating: "x", count: 2_048)
        #expect(try await Self.transcript(of: whole) == "HTTP/1.1 400\n\n" + whole)
        let start = String(repeating: "x", count: 2_047)
        let long = try await Self.transcript(of: start + "é" + String(repeating: "y", count: 100))
        #expect(long == "HTTP/1.1 400\n\n" + start + "… (102 bytes more)")
    }

    @Test("The cut leaves no part of a credential that the answer repeats")
    func secretAtTheCut() async throws {
        let body = String(repeating: "x", count: 2_030) + Self.secret + String(repeating: "y", count: 100)
        let shown = try await Self.transcript(of: body)
        #expect(!shown.contains("0123"))
        #expect(shown.hasSuffix("bytes more)"))
    }
}
