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
        abstract: "Stands in for FCM, APNs, Web Push, Google's token endpoint and a mail relay, as strict as they are.",
        discussion: """
            Writes into the directory, at the first start, all that a client needs: ca.pem (to trust), \
            service-account.json, apns.p8, apns.json (key_id, team_id) and vapid.pem. Prints "ready TLS-URL CONTROL-URL \
            SMTP-URL SMTPS-URL" when it listens.

            Control calls, on the TLS port and without TLS on the control port:
            \(ProviderSandbox.controlHelp)

            \(ProviderSandbox.faultHelp)
            """)

    @Option(help: "The address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "The TLS port; 0 takes any.")
    var port = 0

    @Option(help: "The control port, HTTP/1.1 without TLS; 0 takes any.")
    var controlPort = 0

    @Option(help: "The port for e-mail with STARTTLS; 0 takes any.")
    var smtpPort = 0

    @Option(help: "The port for e-mail over TLS; 0 takes any.")
    var smtpsPort = 0

    @Option(help: "Where the keys and certificates are, made there if missing.")
    var directory: String

    @Option(help: "Event loops.")
    var threads = 1

    @Option(help: "Accepted messages that are kept; beyond that the oldest is dropped and counted.")
    var logLimit = 200_000

    @Flag(help: "Only count accepted messages, keep none.")
    var noRecord = false

    @Option(help: "Retry-After of FCM's 429 and 503 answers, in seconds.")
    var retryAfter = 1

    @Option(help: "How long a slow answer takes, in milliseconds.")
    var slowMilliseconds = 2000

    func validate() throws {
        guard [self.port, self.controlPort, self.smtpPort, self.smtpsPort].allSatisfy((0...65535).contains) else {
            throw ValidationError("A port is a number from 0 to 65535.")
        }
        guard (1...64).contains(self.threads), self.logLimit >= 0, self.retryAfter >= 0, self.slowMilliseconds >= 0
        else {
            throw ValidationError("Counts and times are not negative; threads are 1 to 64.")
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
        configuration.slowDelay = .milliseconds(self.slowMilliseconds)

        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint)
        let sandbox = try await ProviderSandbox.start(directory: self.directory, configuration: configuration)
        print("ready \(sandbox.url) \(sandbox.controlURL) \(sandbox.smtpURL) \(sandbox.smtpsURL)")
        fflush(nil)
        for await _ in signals { break }
        try await sandbox.stop()
    }
}
