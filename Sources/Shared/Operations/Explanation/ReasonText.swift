// Carillon · ReasonText.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The reasons of a simulation in words.
package enum ReasonText {
    private static let words = [
        "excepted": "the job leaves the user out",
        "not_named": "the job is for other users",
        "not_subscribed": "the user is not subscribed to the topic",
        "not_of_type": "the type has no such channel",
        "not_of_job": "the job's channels leave it out",
        "delivery_in_app": "the delivery is in_app, which does not interrupt",
        "refused": "the user's preferences switch it off for this type",
        "not_asked_for": "it is off unless the user switches it on",
        "opted_out": "the user has opted out of everything",
        "opted_out_of_type": "the user has switched off every channel of this type",
        "not_opted_in": "the type is off unless the user switches a channel on",
        "no_channel": "job, type and delivery have no channel in common",
        "type_disabled": "the type is switched off in the catalog",
        "expired": "it expires before then",
        "online": "the user is online",
        "online_silently": "the user is online; clients are asked not to ring in quiet hours",
        "waits_in_inbox": "it waits in the inbox",
        "due": "no rule holds it back",
        "proven_by_socket": "a socket proves receipt, so no push is needed",
        "no_device": "the user has no active device, or none that a dispatcher has a provider for",
        "no_address": "the user has no valid e-mail address",
        "no_provider": "no dispatcher has a mail relay",
        "quiet_hours": "quiet hours",
        "idle": "the user is connected but idle",
        "push_when_online": "the type is pushed to connected users too",
        "unread": "it is still unread at that time",
        "capped_by_user": "the user has reached the cap",
        "capped_by_type": "the user has reached the cap of this type",
        "capped_by_category": "the user has reached the cap of this category",
        "presence_unknown": "presence is unknown",
        "unproven": "on sockets; no proof is expected",
        "offline": "the user is offline",
        "not_needed": "not needed",
    ]

    /// Returns why a channel is used, or not, in words.
    package static func of(_ fate: ChannelFate) -> String {
        if fate.isUsed, fate.reason == Reason.quietHours.rawValue { return "quiet hours hold it back until they end" }
        return self.words[fate.reason] ?? fate.reason
    }
}
