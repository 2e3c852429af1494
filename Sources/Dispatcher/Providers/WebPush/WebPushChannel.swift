// Carillon · WebPushChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Web Push with one key, to whatever services the subscriptions name.
package struct WebPushChannel: HTTPProviderChannel {
    package let provider = Provider.webpush
    package let app: String
    package let transfer: TransferClient
    package let now: @Sendable () -> Timestamp
    /// Its hosts are strangers, whom nobody told that two messages are of one job.
    package let carriesTraces = false
    package let retractionsHaveBadge = true
    package let timeout: Duration?
    private let tokens: VAPIDTokens
    private let origins: WebPushOrigins
    private let shape: PushShape
    private let encryption: WebPushEncryption

    /// - Parameters:
    ///   - origins: the services that subscriptions may name.
    ///   - transfer: a client that does not connect to private addresses.
    package init(
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

    /// The subscription's own service.
    package func service(of device: Device) -> String? {
        (try? WebPushSubscription(token: device.token))?.origin
    }

    package func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest {
        let subscription: WebPushSubscription
        do throws(WebPushSubscription.Fault) {
            subscription = try WebPushSubscription(token: device.token)
        } catch {
            throw MessageRefusal("no_subscription")
        }
        // Apple takes a subscription away that shows nothing.
        if message.purpose == .retract, subscription.origin.hasSuffix(".push.apple.com") {
            throw MessageRefusal("silent_push_not_allowed")
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
            case .message, .ephemeral, .library: throw CredentialFault("cannot encrypt: \(error)")
            }
        }
        let authorization: String
        do throws(VAPIDKey.Fault) {
            authorization = try self.tokens.authorization(origin: subscription.origin, now: message.now)
        } catch {
            throw CredentialFault(error.description)
        }
        return WebPushRequest.make(message, subscription: subscription, authorization: authorization, body: body)
    }

    package func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer? {
        WebPushAnswer.read(
            status: response.status,
            body: response.body,
            isPage: response.isPage,
            isComplete: response.isComplete,
            location: response.header("location"),
            retryAfter: response.retryAfter(now: now)
        )
    }

    /// No answer says that a token has expired, which is renewed long before.
    package func renewCredential(of request: ProviderRequest) async -> Bool { false }
}
