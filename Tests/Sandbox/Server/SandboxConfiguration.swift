// Carillon · SandboxConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

import struct Foundation.Date

/// How a sandbox listens and behaves.
package struct SandboxConfiguration: Sendable {
    /// What the mail relay offers.
    package enum Relay: Sendable {
        case usual
        /// No STARTTLS, as by somebody in between who cuts it out.
        case withoutTLS
        /// Only a way to log in that no client knows.
        case strangeLogin
        /// Greets with 554, and takes nothing.
        case withoutService
        /// STARTTLS is offered and refused with 502.
        case refusedTLS
        /// STARTTLS is offered and refused for now, with 454.
        case busyTLS
        /// Every login is refused for now, with 454.
        case busyLogin
    }

    /// The address to listen on; the certificate is for localhost and 127.0.0.1 and no other.
    package var host = "127.0.0.1"
    /// The TLS port; 0 takes any free one.
    package var port = 0
    /// The plain HTTP port for the control calls; 0 takes any free one.
    package var controlPort = 0
    /// The port for e-mail that begins in the clear and goes on over TLS; 0 takes any free one.
    package var smtpPort = 0
    /// The port for e-mail over TLS from the start; 0 takes any free one.
    package var smtpsPort = 0
    /// Whether HTTP/2 is not offered, as by a proxy that does not know it.
    package var speaksHTTP1Only = false
    /// What the mail relay offers.
    package var relay = Relay.usual
    /// Event loops to serve with.
    package var threads = 1
    /// How many accepted messages are kept; the oldest is dropped, and counted, when one more comes.
    package var logLimit = 200_000
    /// Whether accepted messages are kept at all, or only counted.
    package var recordsMessages = true
    /// A second Firebase project, which has a service account of its own; nil for none.
    package var otherProject: String?
    /// What `Retry-After` says in FCM's 429 and 503 answers, in seconds.
    package var retryAfter = 1
    /// How long an answer of the `slow` fault takes.
    package var slowDelay: Duration = .seconds(2)
    /// Tells the time by which credentials are judged and messages stamped.
    package var clock: @Sendable () -> Date = { Date() }

    /// The defaults above.
    package init() {}
}
