// Carillon · ProviderChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// One way to one provider, with the credentials and the push shape of one app.
package protocol ProviderChannel: Sendable {
    var provider: Provider { get }
    /// The app whose credentials it uses.
    var app: String { get }
    /// Whose quota its messages count against: apps of one account share the rate, and wait together when they are asked to.
    var account: String { get }
    /// Whether what takes a notification away carries the unread count too.
    var retractionsHaveBadge: Bool { get }

    /// Which of several services a device's messages go through: what is wrong with one says nothing about another.
    func service(of device: Device) -> String?

    /// Sends one message and says what came of it; a provider's refusal is an answer, not an error.
    func send(_ message: PushMessage, to device: Device) async -> ProviderReply

    /// Tries what it needs, and sends nobody anything.
    func probe() async -> [ProviderProbe]
}

extension ProviderChannel {
    /// Most providers count each app for itself.
    package var account: String { self.app }

    /// Most providers' messages show all that they have, or nothing.
    package var retractionsHaveBadge: Bool { false }

    /// Most providers are one service.
    package func service(of device: Device) -> String? { nil }
}
