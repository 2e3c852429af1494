// Carillon · WebPush.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Web Push: browsers' own push services.
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
        let key: VAPIDKey
        do {
            key = try VAPIDKey(file: try context.read(path))
        } catch {
            throw CredentialFault("\(error)", setting: "key")
        }
        var origins = WebPushOrigins.any
        if let text = settings["origins"] {
            do throws(WebPushOrigins.Fault) {
                origins = try WebPushOrigins(text)
            } catch {
                throw CredentialFault(error.description, setting: "origins")
            }
        }
        let encryption: WebPushEncryption
        do throws(WebPushEncryptionFault) {
            encryption = try WebPushEncryption()
        } catch {
            throw CredentialFault("cannot encrypt: \(error)")
        }
        return WebPushChannel(
            app: app,
            tokens: VAPIDTokens(key: key, subject: subject),
            origins: origins,
            shape: shape,
            encryption: encryption,
            transfer: try context.transfers.client(of: self.provider, areURLsGiven: true),
            now: context.now,
            timeout: context.timeout
        )
    }
}
