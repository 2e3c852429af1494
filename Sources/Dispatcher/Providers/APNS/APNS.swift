// Carillon · APNS.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Apple's push notification service, with provider tokens.
package enum APNS: ProviderKind {
    package static let provider = Provider.apns
    package static let rules = APNSAnswer.rules
    package static let files = ["key"]
    package static let settings = ["key", "key_id", "team_id", "topic", "endpoint"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let path = try settings.required("key")
        let keyID = try settings.required("key_id")
        let teamID = try settings.required("team_id")
        let topic = try settings.required("topic")
        let key: APNSKey
        do throws(CredentialFault) {
            let pem = String(decoding: try context.read(path), as: UTF8.self)
            key = try await APNSKey(pem: pem, keyID: keyID, teamID: teamID)
        } catch {
            throw error.of("key")
        }
        return try APNSChannel(
            app: app, endpoint: settings["endpoint"], topic: topic, key: key, shape: shape, context: context)
    }
}
