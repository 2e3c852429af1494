// Carillon · ProviderChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The connection to one provider with the credentials and push shape of one app.
package protocol ProviderChannel: Sendable {
    var provider: Provider { get }
    /// The app whose credentials it uses.
    var app: String { get }
    /// The account whose quota its messages count against: apps of one account share the rate and
    /// pause together.
    var account: String { get }
    /// Whether retractions also carry the unread count.
    var retractionsHaveBadge: Bool { get }

    /// Returns the service that carries a device's messages, if the provider has several; a fault
    /// of one says nothing about the others.
    func service(of device: Device) -> String?

    /// Sends one message and returns the outcome; a refusal is an answer, not an error.
    func send(_ message: PushMessage, to device: Device) async -> ProviderReply

    /// Checks the channel's dependencies without sending a message.
    func probe() async -> [ProviderProbe]
}

extension ProviderChannel {
    /// Most providers have one account per app.
    package var account: String { self.app }

    /// Most providers' retractions carry no unread count.
    package var retractionsHaveBadge: Bool { false }

    /// Most providers are one service.
    package func service(of device: Device) -> String? { nil }
}

/// The result of checking one dependency of a channel; the check sends no message.
package struct ProviderProbe: Sendable, Equatable {
    /// The address or other dependency that was checked; never a secret.
    package let subject: String
    /// The fault; nil if the dependency works.
    package let fault: String?

    init(_ subject: String, fault: String?) {
        self.subject = subject
        self.fault = fault
    }
}

extension ProviderChannel {
    /// Checks nothing by default: devices name the hosts.
    package func probe() async -> [ProviderProbe] { [] }
}
