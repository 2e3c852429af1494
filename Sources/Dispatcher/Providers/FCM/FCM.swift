// Carillon · FCM.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Firebase Cloud Messaging, HTTP v1.
package enum FCM: ProviderKind {
    package static let provider = Provider.fcm
    package static let rules = FCMAnswer.rules
    package static let files = ["credentials"]
    package static let settings = ["credentials", "endpoint", "channel", "click_action"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let path = try settings.required("credentials")
        let account: FCMServiceAccount
        do throws(CredentialFault) {
            account = try await FCMServiceAccount(json: try context.read(path))
        } catch {
            throw error.of("credentials")
        }
        return try FCMChannel(
            app: app,
            endpoint: settings["endpoint"] ?? "https://fcm.googleapis.com",
            account: account,
            shape: shape,
            androidChannel: settings["channel"],
            clickAction: settings["click_action"],
            context: context
        )
    }
}
