// Carillon · ProviderSandbox.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Logging

/// A server that stands in for Google's, Apple's and browsers' push services, for a mail relay and for an app's own receiver,
/// as strict as they are.
///
/// Serves OAuth's token endpoint, FCM HTTP v1, APNs, Web Push and webhooks over TLS, and SMTP; device tokens and addresses
/// choose its faults, see ``faultHelp``.
package final class ProviderSandbox: Sendable {
    /// `https://HOST:PORT`: stands for oauth2.googleapis.com, fcm.googleapis.com and api.push.apple.com.
    package let url: String
    /// `http://HOST:PORT`: the control calls, without TLS.
    package let controlURL: String
    /// `smtp://USER:PASSWORD@HOST:PORT`, percent-encoded: the relay, which wants STARTTLS and a login.
    package let smtpURL: String
    /// The same over TLS from the start.
    package let smtpsURL: String
    /// Where webhooks are taken whose signature is by ``webhookSecret``.
    package var webhookURL: String { self.url + WebhookEndpoint.path }
    /// The secret of webhooks' signatures.
    package var webhookSecret: String { WebhookEndpoint.secret }
    /// The service account's project, which must be in FCM's path with its tokens.
    package let projectID: String
    /// APNs' key id, for the provider token's `kid`.
    package let apnsKeyID: String
    /// APNs' team id, for the provider token's `iss`.
    package let apnsTeamID: String

    private let credentials: SandboxCredentials
    private let server: SandboxServer
    private let log: ReceivedLog
    private let attempts: AttemptLedger
    private let accessTokens: AccessTokens
    private let temporaryDirectory: URL?

    /// The certificate that clients must trust, PEM.
    package var caPath: String { self.credentials.path(of: .authority) }
    /// The FCM service account, JSON; its token_uri points here.
    package var serviceAccountPath: String { self.credentials.path(of: .serviceAccount) }
    /// That of the other project, if there is one.
    package var otherServiceAccountPath: String { self.credentials.path(of: .otherServiceAccount) }
    /// The APNs signing key, PKCS#8 PEM.
    package var apnsKeyPath: String { self.credentials.path(of: .apnsKey) }

    /// A key to send Web Push with, PKCS#8 PEM: that of ``subscription(_:)``.
    package var vapidKeyPath: String { self.credentials.path(of: .vapidKey) }

    /// What a browser would get that subscribes here with the key at ``vapidKeyPath``.
    ///
    /// - Parameter id: a name of letters, digits, hyphens and underscores, which has the same keys each time.
    package func subscription(_ id: String) -> SandboxSubscription {
        SandboxSubscription(id: id, origin: self.url, applicationServerKey: self.credentials.applicationServerKey)
    }

    /// The table of device tokens and addresses that make faults, as text.
    package static var faultHelp: String { FaultTable.help + "\n\n" + MailFaults.help }

    /// The table of control calls, as text.
    package static var controlHelp: String { ControlEndpoint.help }

    /// Listens, having written the credentials into the directory at its first use.
    ///
    /// Without a directory a temporary one is made, and removed by ``stop()``. Running sandboxes must not share one:
    /// the service account names the port. Throws ``SandboxError`` or the socket's error.
    package static func start(
        directory: String? = nil,
        configuration: SandboxConfiguration = SandboxConfiguration(),
        logger: Logger = Logger(label: "carillon.provider-sandbox")
    ) async throws -> ProviderSandbox {
        let temporary = FileManager.default.temporaryDirectory
            .appendingPathComponent("provider-sandbox-\(UUID().uuidString)", isDirectory: true)
        let place = directory.map { URL(fileURLWithPath: $0, isDirectory: true) } ?? temporary
        let credentials = try await SandboxCredentials.prepare(in: place, otherProject: configuration.otherProject)

        let log = ReceivedLog(configuration, logger: logger)
        let attempts = AttemptLedger()
        let accessTokens = AccessTokens()
        let location = SandboxLocation()
        let faults = FaultTable(attempts: attempts)
        let service = SandboxService(
            tokens: TokenEndpoint(credentials.accounts, tokens: accessTokens, configuration),
            fcm: FCMEndpoint(tokens: accessTokens, faults: faults, log: log, configuration),
            apns: APNSEndpoint(credentials.apns, faults: faults, log: log, configuration),
            webPush: WebPushEndpoint(faults: faults, log: log, configuration),
            webhook: WebhookEndpoint(faults: faults, log: log, configuration),
            control: ControlEndpoint(log: log, attempts: attempts, tokens: accessTokens, location: location))
        let mail = MailEndpoint(faults: MailFaults(attempts: attempts), log: log, configuration)
        let server = try await SandboxServer.start(
            configuration, credentials: credentials, service: service, mail: mail)
        let sandbox = ProviderSandbox(
            host: configuration.host == "0.0.0.0" ? "127.0.0.1" : configuration.host, credentials: credentials,
            server: server, log: log, attempts: attempts, accessTokens: accessTokens,
            temporaryDirectory: directory == nil ? temporary : nil)
        location.url = sandbox.url
        try credentials.writeServiceAccounts(tokenURI: sandbox.url + "/token")
        return sandbox
    }

    /// Runs the body with a sandbox of its own, which is stopped whatever the body does.
    package static func with<Result>(
        directory: String? = nil,
        configuration: SandboxConfiguration = SandboxConfiguration(),
        _ body: (ProviderSandbox) async throws -> Result
    ) async throws -> Result {
        let sandbox = try await Self.start(directory: directory, configuration: configuration)
        let result: Result
        do {
            result = try await body(sandbox)
        } catch {
            try? await sandbox.stop()
            throw error
        }
        try await sandbox.stop()
        return result
    }

    private init(
        host: String, credentials: SandboxCredentials, server: SandboxServer, log: ReceivedLog, attempts: AttemptLedger,
        accessTokens: AccessTokens, temporaryDirectory: URL?
    ) {
        self.url = "https://\(host):\(server.port)"
        self.controlURL = "http://\(host):\(server.controlPort)"
        let login = "\(MailEndpoint.user):pass%3Aword%2F1"
        self.smtpURL = "smtp://\(login)@\(host):\(server.smtpPort)"
        self.smtpsURL = "smtps://\(login)@\(host):\(server.smtpsPort)"
        self.projectID = credentials.account.projectID
        self.apnsKeyID = credentials.apns.keyID
        self.apnsTeamID = credentials.apns.teamID
        self.credentials = credentials
        self.server = server
        self.log = log
        self.attempts = attempts
        self.accessTokens = accessTokens
        self.temporaryDirectory = temporaryDirectory
    }

    /// The accepted messages that are kept, oldest first.
    package func received() -> [ReceivedMessage] {
        self.log.messages(since: 0, limit: .max)
    }

    /// The valid requests whose connection was cut in place of an answer, oldest first; no mails.
    package func cut() -> [ReceivedMessage] { self.log.cutMessages }

    /// How often each device token and address with a fault was tried since the last reset.
    package func faultAttempts() -> [String: Int] {
        self.attempts.counts
    }

    /// Forgets the accepted messages and the tries.
    package func reset() {
        self.log.reset()
        self.attempts.reset()
    }

    /// Makes every access token that was given out invalid, so that FCM answers 401 to it.
    package func revokeAccessTokens() {
        self.accessTokens.revokeAll()
    }

    /// What the token endpoint does from now on with valid requests; nil lets it hand out tokens.
    package func failTokens(_ fault: TokenFault?) {
        self.accessTokens.fault = fault
    }

    /// How often an access token was asked for with all that it takes, and how many were given out.
    package var accessTokenCounts: (asked: Int, issued: Int) { self.accessTokens.counts }

    /// Closes the listeners and every connection; what it received can still be asked.
    package func stopListening() async throws {
        try await self.server.stop()
    }

    /// Closes every connection, and removes a temporary directory.
    package func stop() async throws {
        try await self.server.stop()
        if let temporaryDirectory { try FileManager.default.removeItem(at: temporaryDirectory) }
    }
}
