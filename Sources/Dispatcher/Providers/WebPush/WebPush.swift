// Carillon · WebPush.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization

/// Web Push through the browsers' push services.
package enum WebPush: ProviderKind {
    package static let provider = Provider.webpush
    package static let rules = WebPushAnswer.rules
    package static let files = ["key"]
    package static let settings = ["key", "subject", "origins"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let path = try settings.required("key")
        let subject = try settings.required("subject")
        guard VAPIDKey.isSubject(subject) else {
            throw CredentialFault(
                "must be a contact such as mailto:push@example.com or https://example.com/contact", setting: "subject")
        }
        let key = try CredentialFault.of("key") { try VAPIDKey(file: try context.read(path)) }
        let origins = try CredentialFault.of("origins") { try settings["origins"].map { try WebPushOrigins($0) } }
        let encryption: WebPushEncryption
        do throws(WebPushEncryptionFault) {
            encryption = try WebPushEncryption()
        } catch {
            throw CredentialFault("cannot encrypt: \(error)")
        }
        return WebPushChannel(
            app: app,
            tokens: VAPIDTokens(key: key, subject: subject),
            origins: origins ?? .any,
            shape: shape,
            encryption: encryption,
            transfer: try context.transfers.client(of: self.provider, strangersChooseURLs: true),
            now: context.now,
            timeout: context.timeout
        )
    }
}

/// Web Push with one key, to any service that subscriptions name.
struct WebPushChannel: HTTPProviderChannel {
    let provider = Provider.webpush
    let app: String
    let transfer: TransferClient
    let now: @Sendable () -> Timestamp
    /// The hosts are strangers; trace headers would link messages of one job.
    let carriesTraces = false
    let timeout: Duration?
    private let tokens: VAPIDTokens
    private let origins: WebPushOrigins
    private let shape: PushShape
    private let encryption: WebPushEncryption

    /// - Parameters:
    ///   - origins: the services that subscriptions may name.
    ///   - transfer: a client that refuses private addresses.
    init(
        app: String,
        tokens: VAPIDTokens,
        origins: WebPushOrigins,
        shape: PushShape,
        encryption: WebPushEncryption,
        transfer: TransferClient,
        now: @escaping @Sendable () -> Timestamp,
        timeout: Duration? = nil
    ) {
        self.app = app
        self.tokens = tokens
        self.origins = origins
        self.shape = shape
        self.encryption = encryption
        self.transfer = transfer
        self.now = now
        self.timeout = timeout
    }

    /// The subscription's push service.
    func service(of device: Device) -> String? {
        (try? WebPushSubscription(token: device.token))?.origin
    }

    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        let subscription: WebPushSubscription
        do throws(FieldFault) {
            subscription = try WebPushSubscription(token: device.token)
        } catch {
            throw MessageRefusal("no_subscription")
        }
        guard self.origins.allows(subscription.origin) else { throw MessageRefusal("origin_not_allowed") }
        let payload = WebPushPayload.make(message, shape: self.shape, limit: WebPushEncryption.maximumMessageBytes)
        let body: [UInt8]
        do throws(WebPushEncryptionFault) {
            body = try self.encryption.encrypt(
                payload, publicKey: subscription.publicKey, secret: subscription.secret)
        } catch {
            switch error {
            case .publicKey, .secret: throw MessageRefusal("bad_subscription_key")
            // The shape's own members alone are too long.
            case .message: throw MessageRefusal("too_large")
            case .ephemeral, .library: throw CredentialFault("cannot encrypt: \(error)")
            }
        }
        let authorization: String
        do throws(FieldFault) {
            authorization = try self.tokens.authorization(origin: subscription.origin, now: message.now)
        } catch {
            throw CredentialFault(error.description)
        }
        return WebPushRequest.make(message, subscription: subscription, authorization: authorization, body: body)
    }

    func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
        WebPushAnswer.read(
            status: response.status,
            body: response.body,
            isPage: response.isPage,
            isComplete: response.isComplete,
            location: response.header("location"),
            retryAfter: response.retryAfter(now: now)
        )
    }
}

/// The `Authorization` values of one key, cached for each push service.
final class VAPIDTokens: Sendable {
    /// Services accept a token for at most a day (RFC 8292 section 2).
    private static let lifetime: Duration = .seconds(12 * 3_600)
    /// Tokens are renewed after half of their lifetime, which tolerates clock differences.
    private static let use: Duration = .seconds(6 * 3_600)

    private struct Token {
        let text: String
        let renewAt: Timestamp
    }

    private let key: VAPIDKey
    private let subject: String
    /// The limit on cached origins: strangers choose endpoints, while few services are widely used.
    private let capacity: Int
    private let tokens = Mutex<[String: Token]>([:])

    init(key: VAPIDKey, subject: String, capacity: Int = 256) {
        self.key = key
        self.subject = subject
        self.capacity = capacity
    }

    /// Returns the `Authorization` value for the service at `origin`; at capacity it evicts others.
    func authorization(origin: String, now: Timestamp) throws(FieldFault) -> String {
        // A token from before the clock stepped back may be valid for more than a day.
        if let known = self.tokens.withLock({ $0[origin] }), now < known.renewAt, known.renewAt - now <= Self.lifetime {
            return known.text
        }
        let token = try self.key.token(audience: origin, subject: self.subject, expiresAt: now + Self.lifetime)
        let text = "vapid t=\(token), k=\(self.key.publicKey)"
        self.tokens.withLock { tokens in
            if tokens.count >= self.capacity, tokens[origin] == nil {
                tokens = tokens.filter { now < $0.value.renewAt }
                while tokens.count >= self.capacity, let other = tokens.keys.first { tokens[other] = nil }
            }
            tokens[origin] = Token(text: text, renewAt: now + Self.use)
        }
        return text
    }

    /// The number of cached origins.
    var count: Int { self.tokens.withLock { $0.count } }
}
