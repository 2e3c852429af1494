// Carillon · MailConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

/// What a ``MailClient`` trusts and how much it takes on at once.
package struct MailConfiguration: Sendable {
    /// A PEM file of authorities trusted besides the system's directory; nil for the system's bundle alone.
    package var caFile: String?
    /// Connections to the relay, each on a thread of its own; made when all others are busy.
    package var connections = 16
    /// Messages of one priority that wait for a connection; at the bound a message ends as `overloaded` at once.
    package var maximumWaiting = 10_000
    /// TCP alone.
    package var connectTimeout: Duration = .seconds(10)
    /// After how long without a message a connection is closed; relays have the patience of minutes.
    package var idleTime: Duration = .seconds(30)

    package init() {}
}
