// Carillon · ProviderChannel.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// One way to one provider, with the credentials and the push shape of one app.
package protocol ProviderChannel: Sendable {
    var provider: Provider { get }
    /// The app whose credentials it uses.
    var app: String { get }

    /// Sends one message and says what came of it; a provider's refusal is an answer, not an error.
    func send(_ message: PushMessage, to device: Device) async -> ProviderReply
}
