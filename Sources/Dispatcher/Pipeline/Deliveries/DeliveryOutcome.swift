// Carillon · DeliveryOutcome.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Storage

/// How one delivery ended, to be recorded with others.
struct DeliveryOutcome: Sendable {
    enum Result: Sendable {
        case answered(ProviderAnswer)
        /// The gate stayed shut.
        case refused(GateRefusal)
        /// Quiet hours have begun; it goes out when they end.
        case putOff(until: Timestamp)
        /// The notification or the device is gone.
        case gone
        /// No answer came; whether the provider has it is not known if `mayHaveBeenSent`.
        case unanswered(reason: String, mayHaveBeenSent: Bool)
        /// There is no credential now.
        case noCredential(reason: String)
        /// It cannot be sent to the device by our own rules; the provider was not called.
        case unsendable(reason: String)
        /// Nobody can send to the device's app.
        case noProvider
        /// It was not its turn: the provider is out of use for its app, the app's rate is used up, or it waited in our own
        /// queue for too long.
        case heldBack(until: Timestamp, reason: String, app: String)
        /// It is not tried any more, as its dispatchers died.
        case deadly
        /// The entry is no work at all.
        case malformed
    }

    let entry: StreamEntry
    let group: ConsumerGroup
    let lane: Lane
    let work: DeliveryWork?
    /// What it was sent by; nil if that is gone, or was not looked up.
    let facts: DeliveryStore.Facts?
    /// The app whose credentials it was called with; nil if it was not.
    ///
    /// Mail is no app's, and is written by whichever has a relay.
    let app: String?
    let sentAt: Timestamp
    let result: Result
    let duration: Duration

    var expiresAt: Timestamp? { self.facts?.notification.expiresAt }
}
