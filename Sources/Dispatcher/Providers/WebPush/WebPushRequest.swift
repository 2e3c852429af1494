// Carillon · WebPushRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Makes requests of push services (RFC 8030).
enum WebPushRequest {
    /// Four weeks, which is as long as services keep a message.
    private static let longestTimeToLive: Int64 = 2_419_200

    /// The request that carries `body`, which is encrypted.
    static func make(
        _ message: PushMessage,
        subscription: WebPushSubscription,
        authorization: String,
        body: [UInt8]
    ) -> ProviderRequest {
        var headers: [(name: String, value: String)] = [
            ("authorization", authorization),
            ("content-encoding", "aes128gcm"),
            ("content-type", "application/octet-stream"),
            ("ttl", String(min(message.secondsToLive ?? Self.longestTimeToLive, Self.longestTimeToLive))),
            ("urgency", Self.urgency(of: message)),
        ]
        // What takes a message away must not take its place on the way.
        if message.purpose == .show, let key = message.notification.collapseKey {
            headers.append(("topic", KeyHash.text(key)))
        }
        return ProviderRequest(url: subscription.endpoint, headers: headers, body: body)
    }

    /// A phone that saves its battery waits with `low` (RFC 8030 section 5.3).
    private static func urgency(of message: PushMessage) -> String {
        if message.purpose == .retract { return "low" }
        if let own = message.overrides(.webpush)?["urgency"]?.string, PlatformFields.urgencies.contains(own) {
            return own
        }
        if message.priority == .high { return "high" }
        return message.notification.severity == .info && message.notification.lane == .bulk ? "low" : "normal"
    }
}
