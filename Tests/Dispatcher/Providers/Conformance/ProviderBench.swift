// Carillon · ProviderBench.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Logging
import Operations
import Providers
import Sandbox
import Support
import Testing

@testable import Clients

/// A provider's channel to a sandbox, over real connections.
struct ProviderBench: Sendable {
    /// The sandbox's `Retry-After`, different from every provider's own minimum.
    static let retryAfter = 7

    let profile: ProviderProfile
    let sandbox: ProviderSandbox
    let channel: any ProviderChannel

    static var now: Timestamp { .now() }

    /// Runs the body with its own sandbox and channel.
    ///
    /// - Parameters:
    ///   - row: the unusual settings.
    ///   - change: changes the sandbox's configuration.
    ///   - now: the channel's clock; the sandbox has its own.
    static func with<Result>(
        _ profile: ProviderProfile,
        _ row: ProviderProfile.Row = .init(),
        timeout: Duration = longestWait,
        change: (inout SandboxConfiguration) -> Void = { _ in },
        now: @escaping @Sendable () -> Timestamp = { ProviderBench.now },
        _ body: (ProviderBench) async throws -> Result
    ) async throws -> Result {
        var configuration = SandboxConfiguration()
        configuration.retryAfter = Self.retryAfter
        configuration.slowPause = SlowPause(.milliseconds(50))
        row.sandbox?(&configuration)
        change(&configuration)
        return try await ProviderSandbox.with(configuration: configuration) { sandbox in
            try await Self.withContext(sandbox, timeout: timeout, now: now) { context in
                var settings = profile.settings(sandbox)
                row.settings(&settings, sandbox)
                let channel = try await profile.kind.channel(
                    app: "default", settings: settings, shape: .standard, context: context)
                return try await body(ProviderBench(profile: profile, sandbox: sandbox, channel: channel))
            }
        }
    }

    /// Runs the body with a channel context and closes the connections afterwards.
    static func withContext<Result>(
        _ sandbox: ProviderSandbox,
        timeout: Duration = longestWait,
        read: @escaping @Sendable (String) throws(CredentialFault) -> [UInt8] = ProviderBench.contents,
        now: @escaping @Sendable () -> Timestamp = { ProviderBench.now },
        _ body: (ChannelContext) async throws -> Result
    ) async throws -> Result {
        var configuration = TransferConfiguration()
        configuration.caFile = sandbox.caPath
        // A single connection, so that ending it ends all requests in flight.
        configuration.connectionsPerHost = 1
        configuration.connectTimeout = longestWait
        let logger = Logger(label: "conformance")
        let transfers = TransferPool(configuration: configuration, allowsPrivateAddresses: true, logger: logger)
        let context = ChannelContext(
            transfers: transfers,
            now: now,
            logger: logger, read: read, caFile: sandbox.caPath, timeout: timeout)
        return try await withCleanUp({ await transfers.shutdown() }) { try await body(context) }
    }

    @Sendable
    static func contents(_ path: String) throws(CredentialFault) -> [UInt8] {
        guard let bytes = FileManager.default.contents(atPath: path) else { throw CredentialFault("cannot be read") }
        return Array(bytes)
    }

    /// Returns a device whose token begins with a marker.
    func device(_ marker: String = "") -> Device { self.device(token: self.profile.token(marker, self.sandbox)) }

    func device(token: String) -> Device { Messages.device(self.profile.provider, token: token) }

    func send(
        _ marker: String = "", _ change: (inout Notification) -> Void = { _ in }
    ) async -> ProviderReply {
        await self.channel.send(Self.message(change), to: self.device(marker))
    }

    /// Returns a message with the current time, which servers check.
    static func message(_ change: (inout Notification) -> Void = { _ in }) -> PushMessage {
        let now = Self.now
        var notification = Messages.make(change).notification
        notification.expiresAt = now + .seconds(600)
        var message = PushMessage(notification: notification, now: now)
        message.badge = notification.extras.badge ?? 3
        return message
    }
}

extension ProviderReply {
    var isAccepted: Bool {
        if case .answered(.accepted) = self.result { true } else { false }
    }

    /// Whether the provider may have the message without an answer; nil if it answered.
    var mayHaveBeenSent: Bool? {
        if case .unanswered(_, let mayHaveBeenSent) = self.result { mayHaveBeenSent } else { nil }
    }

    /// The reaction to the answer or to our own refusal; nil if there is none, or it was accepted.
    var reaction: AnswerRule.Reaction? {
        if case .unsendable = self.result { return .refused }
        guard case .answered(let answer) = self.result else { return nil }
        return switch answer {
        case .accepted: nil
        case .retry: .retry
        case .retryDevice: .retryDevice
        case .slowDown: .slowDown
        case .deadToken: .deadToken
        case .refused: .refused
        case .staleCredential: .staleCredential
        case .configuration(_, concernsAll: true): .configuration
        case .configuration: .partialConfiguration
        }
    }

    /// The delay that the answer asks for.
    var delay: Duration? {
        guard case .answered(let answer) = self.result else { return nil }
        return switch answer {
        case .retry(_, let after): after
        case .retryDevice(_, let after), .slowDown(_, let after): after
        default: nil
        }
    }
}
