// Carillon · WebhookProvider.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// An app's own HTTP receiver, which forwards notifications as it likes.
package enum WebhookProvider: ProviderKind {
    /// A shorter secret can be guessed.
    private static let shortestSecret = 16

    package static let provider = Provider.webhook
    package static let rules = WebhookAnswer.rules
    package static let files = ["secret_file"]
    package static let settings = ["url", "secret", "secret_file"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let url = try settings.required("url")
        let (secret, setting) = try self.secret(settings, context)
        // Without TLS, eavesdroppers could read the notifications.
        if let fault = Webhook.fault(inURL: url, allowsPlain: false) { throw CredentialFault(fault, setting: "url") }
        guard secret.utf8.count >= Self.shortestSecret else {
            throw CredentialFault("must be at least \(Self.shortestSecret) bytes", setting: setting)
        }
        return try WebhookChannel(app: app, url: url, secret: secret, shape: shape, context: context)
    }

    /// Returns the secret and the setting that it came from.
    private static func secret(
        _ settings: [String: String],
        _ context: ChannelContext
    ) throws(CredentialFault) -> (text: String, setting: String) {
        guard let path = settings["secret_file"] else { return (try settings.required("secret"), "secret") }
        guard settings["secret"] == nil else {
            throw CredentialFault("cannot be set together with secret; remove one of them", setting: "secret_file")
        }
        return (try CredentialFault.of("secret_file") { try context.secret(path) }, "secret_file")
    }
}

/// The channel to one app's own receiver.
struct WebhookChannel: HTTPProviderChannel {
    let provider = Provider.webhook
    let app: String
    let transfer: TransferClient
    let now: @Sendable () -> Timestamp
    let timeout: Duration?
    let retractionsHaveBadge = true
    private let url: String
    private let secret: String
    private let shape: PushShape

    init(app: String, url: String, secret: String, shape: PushShape, context: ChannelContext) throws(CredentialFault) {
        self.app = app
        self.transfer = try context.transfers.client(of: self.provider)
        self.now = context.now
        self.timeout = context.timeout
        self.url = url
        self.secret = secret
        self.shape = shape
    }

    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        // Only printable ASCII is accepted.
        guard !device.token.isEmpty, device.token.utf8.allSatisfy({ (0x20...0x7E).contains($0) }) else {
            throw MessageRefusal("token_malformed")
        }
        return WebhookRequest.make(
            message, device: device, url: self.url, secret: self.secret, shape: self.shape, at: self.now())
    }

    func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
        WebhookAnswer.read(status: response.status, body: response.body, retryAfter: response.retryAfter(now: now))
    }
}

/// Maps the HTTP statuses of an app's own receiver.
package enum WebhookAnswer {
    private static let longestID = 256

    /// The meaning of each status.
    package static let rules: [AnswerRule] = [
        AnswerRule("HTTP_400", .refused, "the receiver rejects the request; see its answer"),
        AnswerRule("HTTP_401", .configuration, "the receiver rejects the signature; check the secret and the clock"),
        // The refusal may concern one token, which its user chose; other deliveries must go on.
        AnswerRule(
            "HTTP_403", .partialConfiguration,
            "the receiver refuses the token or the signature; it should answer 410 if the user may not use the token"),
        AnswerRule("HTTP_404", .refused, "the URL does not exist; the receiver should answer 410 for an unknown token"),
        AnswerRule("HTTP_408", .retry, after: .seconds(10), "the receiver was too slow; check it"),
        AnswerRule("HTTP_410", .deadToken, "the receiver no longer knows the token; register the device again"),
        AnswerRule("HTTP_413", .refused, "the receiver accepts only smaller requests; send less data"),
        // Both ask for the same request again (RFC 9110 section 15.5.20, RFC 8470 section 5.2).
        AnswerRule("HTTP_421", .retry, after: .seconds(10), "the connection led to another server; check its proxy"),
        AnswerRule("HTTP_425", .retry, after: .seconds(10), "the receiver got the request too early; check its proxy"),
        AnswerRule("HTTP_429", .slowDown, after: .seconds(60), "the receiver wants fewer requests; set a rate"),
        AnswerRule("HTTP_500", .retry, after: .seconds(10), "the receiver failed internally; check it"),
        AnswerRule("HTTP_503", .retry, after: .seconds(10), "the receiver is unavailable; check it"),
    ]

    private static let byReason = Dictionary(uniqueKeysWithValues: rules.map { ($0.reason, $0) })

    /// Maps an answer.
    ///
    /// - Parameter retryAfter: the Retry-After header.
    static func read(status: Int, body: [UInt8], retryAfter: Duration?) -> ProviderAnswer {
        if (200..<300).contains(status) {
            let id = (try? JSONParser.parse(body))?["id"]?.string
            return .accepted(id: id.map { String($0.unicodeScalars.prefix(Self.longestID)) })
        }
        let code = "HTTP_\(status)"
        if let rule = Self.byReason[code] { return rule.answer(after: retryAfter) }
        return status >= 500 ? .retry(reason: code, after: retryAfter ?? .seconds(10)) : .refused(reason: code)
    }
}
