// Carillon · ProviderSandboxCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Glibc
import Sandbox
import UnixSignals

/// Runs a provider sandbox until SIGTERM or SIGINT.
@main
struct ProviderSandboxCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "provider-sandbox",
        abstract: "Stands in for FCM, APNs, Web Push, webhooks and a mail relay, and is as strict as they are.",
        discussion: """
            The first start writes the files that a client needs into the directory: ca.pem (to trust), \
            service-account.json, apns.p8, apns.json (key_id, team_id) and vapid.pem. Prints "ready TLS-URL CONTROL-URL \
            SMTP-URL SMTPS-URL" once it listens.

            Control calls, over TLS on the main port and without TLS on the control port:
            \(ProviderSandbox.controlHelp)

            \(ProviderSandbox.faultHelp)
            """)

    @Option(help: "Address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "TLS port; 0 for any free port.")
    var port = 0

    @Option(help: "Control port, HTTP/1.1 without TLS; 0 for any free port.")
    var controlPort = 0

    @Option(help: "SMTP port with STARTTLS; 0 for any free port.")
    var smtpPort = 0

    @Option(help: "SMTP port with implicit TLS; 0 for any free port.")
    var smtpsPort = 0

    @Option(help: "Directory of the keys and certificates; created if missing.")
    var directory: String

    @Option(help: "Number of event loops.")
    var threads = 1

    @Option(help: "Number of accepted messages to keep; the oldest are dropped and counted.")
    var logLimit = 200_000

    @Flag(help: "Count accepted messages without keeping them.")
    var noRecord = false

    @Option(help: "Retry-After of FCM's 429 and 503 responses, in seconds.")
    var retryAfter = 1

    @Option(help: "Delay of a slow answer, in milliseconds.")
    var slowMilliseconds = 2000

    func validate() throws {
        guard [self.port, self.controlPort, self.smtpPort, self.smtpsPort].allSatisfy((0...65535).contains) else {
            throw ValidationError("ports: outside 0 to 65535")
        }
        guard (1...64).contains(self.threads), self.logLimit >= 0, self.retryAfter >= 0, self.slowMilliseconds >= 0
        else {
            throw ValidationError("--threads: 1 to 64; --log-limit, --retry-after and --slow-milliseconds: 0 or more")
        }
    }

    func run() async throws {
        var configuration = SandboxConfiguration()
        configuration.host = self.host
        configuration.port = self.port
        configuration.controlPort = self.controlPort
        configuration.smtpPort = self.smtpPort
        configuration.smtpsPort = self.smtpsPort
        configuration.threads = self.threads
        configuration.logLimit = self.logLimit
        configuration.recordsMessages = !self.noRecord
        configuration.retryAfter = self.retryAfter
        configuration.slowPause = SlowPause(.milliseconds(self.slowMilliseconds))

        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint)
        let sandbox = try await ProviderSandbox.start(directory: self.directory, configuration: configuration)
        print("ready \(sandbox.url) \(sandbox.controlURL) \(sandbox.smtpURL) \(sandbox.smtpsURL)")
        fflush(nil)
        for await _ in signals { break }
        try await sandbox.stop()
    }
}
