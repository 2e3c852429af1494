// Carillon · RedisConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// How a Redis connection behaves.
package struct RedisConfiguration: Sendable {
    package var address: RedisAddress
    /// The name that `CLIENT LIST` shows.
    package var clientName: String
    /// PEM file of the authorities that a `rediss://` server's certificate is checked against; the system's if nil.
    package var certificateAuthorityFile: String?
    package var connectTimeout: Duration = .seconds(5)
    /// How long a command may take from the call to its reply.
    package var commandTimeout: Duration = .seconds(5)
    /// How many commands may wait for a connection or a reply; more are refused with `overloaded`.
    package var maximumWaitingCommands = 65_536
    /// How many bytes may wait to be written; more are refused with `overloaded`.
    package var maximumWaitingBytes = 64 * 1024 * 1024
    package var reconnect = Backoff(base: .milliseconds(50), limit: .seconds(2))

    package init(address: RedisAddress, clientName: String) {
        self.address = address
        self.clientName = clientName
    }
}
