// Carillon · EmailChannelTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Providers
import Sandbox
import Support
import Testing

/// What e-mail does besides what every provider does.
@Suite("The way to a relay", .timeLimit(.minutes(10)))
struct EmailChannelTests {
    @Test("A mail that waited for a connection until its time was over says nothing about the relay")
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
            try await eventually("the relay has a mail") {
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
