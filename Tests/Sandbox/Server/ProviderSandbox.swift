// Carillon · ProviderSandbox.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Logging

/// A server that stands in for FCM, APNs, Web Push, Google's token endpoint, a mail relay and an
/// app's webhook receiver, and is as strict as they are.
///
/// It serves HTTP over TLS and SMTP. Device tokens and addresses choose faults, see ``faultHelp``.
package final class ProviderSandbox: Sendable {
    /// `https://HOST:PORT`: replaces oauth2.googleapis.com, fcm.googleapis.com and
    /// api.push.apple.com.
    package let url: String
    /// `http://HOST:PORT`: the control calls, without TLS.
    package let controlURL: String
    /// `smtp://USER:PASSWORD@HOST:PORT`, percent-encoded: the relay, which requires STARTTLS and a
    /// login.
    package let smtpURL: String
    /// The same relay over implicit TLS.
    package let smtpsURL: String
    /// The URL of the webhook receiver; signatures use ``webhookSecret``.
    package var webhookURL: String { self.url + WebhookEndpoint.path }
    /// The secret for the signatures of webhooks.
    package var webhookSecret: String { WebhookEndpoint.secret }
    /// The service account's project, required in FCM's path.
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

    /// The CA certificate that clients must trust, PEM.
    package var caPath: String { self.credentials.path(of: .authority) }
    /// The FCM service account, JSON; its `token_uri` points to the sandbox.
    package var serviceAccountPath: String { self.credentials.path(of: .serviceAccount) }
    /// The service account of the second project, if there is one.
    package var otherServiceAccountPath: String { self.credentials.path(of: .otherServiceAccount) }
    /// The APNs signing key, PKCS#8 PEM.
    package var apnsKeyPath: String { self.credentials.path(of: .apnsKey) }

    /// The VAPID key of ``subscription(_:)``, PKCS#8 PEM.
    package var vapidKeyPath: String { self.credentials.path(of: .vapidKey) }

    /// Returns the subscription that a browser would get here for the key at ``vapidKeyPath``.
    ///
    /// - Parameter id: a name of letters, digits, hyphens and underscores; the same name has the
    ///   same keys.
    package func subscription(_ id: String) -> SandboxSubscription {
        SandboxSubscription(id: id, origin: self.url, applicationServerKey: self.credentials.applicationServerKey)
    }

    /// The table of device tokens and addresses that cause faults, as text.
    package static var faultHelp: String { FaultTable.help + "\n\n" + MailFaults.help }

    /// The table of control calls, as text.
    package static var controlHelp: String { ControlEndpoint.help }

    /// Starts a sandbox; the first start in a directory creates the credentials.
    ///
    /// Without a directory it uses a temporary one, which ``stop()`` removes. Running sandboxes
    /// must not share a directory, because the service account contains the port. Throws
    /// ``SandboxError`` or the socket's error.
    package static func start(
        directory: String? = nil,
        configuration: SandboxConfiguration = SandboxConfiguration(),
        logger: Logger = Logger(label: "carillon.provider-sandbox")
    ) async throws -> ProviderSandbox {
        let temporary = FileManager.default.temporaryDirectory
            .appendingPathComponent("provider-sandbox-\(UUID().uuidString)", isDirectory: true)
        let place = directory.map { URL(fileURLWithPath: $0, isDirectory: true) } ?? temporary
        if directory == nil { try await SandboxCredentials.fill(temporary) }
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

    /// Runs `body` with a sandbox, which is stopped afterwards.
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

    /// Returns the recorded messages, oldest first.
    package func received() -> [ReceivedMessage] {
        self.log.messages(since: 0, limit: .max)
    }

    /// Returns valid requests whose connection was cut instead of an answer, oldest first; of
    /// e-mails, those cut after their content.
    package func cut() -> [ReceivedMessage] { self.log.cutMessages }

    /// Returns the attempts for each device token and address with a fault since the last reset.
    package func faultAttempts() -> [String: Int] {
        self.attempts.counts
    }

    /// Clears the recorded messages and the attempts.
    package func reset() {
        self.log.reset()
        self.attempts.reset()
    }

    /// Revokes every access token, so that FCM answers 401.
    package func revokeAccessTokens() {
        self.accessTokens.revokeAll()
    }

    /// Sets the fault that valid token requests get; nil for none.
    package func failTokens(_ fault: TokenFault?) {
        self.accessTokens.fault = fault
    }

    /// The number of valid requests for an access token, and of issued tokens.
    package var accessTokenCounts: (asked: Int, issued: Int) { self.accessTokens.counts }

    /// Closes the listeners and all connections; recorded messages stay available.
    package func stopListening() async throws {
        try await self.server.stop()
    }

    /// Stops the server and removes a temporary directory.
    package func stop() async throws {
        try await self.server.stop()
        if let temporaryDirectory { try FileManager.default.removeItem(at: temporaryDirectory) }
    }
}

/// The settings of a sandbox.
package struct SandboxConfiguration: Sendable {
    /// Variants of the mail relay.
    package enum Relay: Sendable {
        case usual
        /// No STARTTLS, as when an attacker strips it.
        case withoutTLS
        /// Offers only a login mechanism that no client knows.
        case strangeLogin
        /// Also offers GSSAPI, which needs a Kerberos ticket.
        case kerberosLogin
        /// Greets with 554 and accepts nothing.
        case withoutService
        /// Offers STARTTLS but refuses it with 502.
        case refusedTLS
        /// Offers STARTTLS but refuses it temporarily with 454.
        case busyTLS
        /// Refuses every login temporarily with 454.
        case busyLogin
    }

    /// The address to listen on; the certificate covers only localhost and 127.0.0.1.
    package var host = "127.0.0.1"
    /// The TLS port; 0 for any free port.
    package var port = 0
    /// The plain HTTP port for the control calls; 0 for any free port.
    package var controlPort = 0
    /// The SMTP port with STARTTLS; 0 for any free port.
    package var smtpPort = 0
    /// The SMTP port with implicit TLS; 0 for any free port.
    package var smtpsPort = 0
    /// Whether only HTTP/1.1 is offered, as by an old proxy.
    package var speaksHTTP1Only = false
    package var relay = Relay.usual
    /// The most connections to the mail relay; it greets others with 421.
    package var mailConnections = Int.max
    /// The number of event loops.
    package var threads = 1
    /// The number of messages to record; the oldest is then dropped and counted.
    package var logLimit = 200_000
    /// Whether accepted messages are recorded or only counted.
    package var recordsMessages = true
    /// A second Firebase project with its own service account; nil for none.
    package var otherProject: String?
    /// `Retry-After` of FCM's 429 and 503 responses, in seconds.
    package var retryAfter = 1
    /// When the `slow` fault answers.
    package var slowPause = SlowPause(.seconds(2))
    /// The clock for credentials and time stamps.
    package var clock: @Sendable () -> Date = { Date() }

    /// A configuration with the default values.
    package init() {}
}
