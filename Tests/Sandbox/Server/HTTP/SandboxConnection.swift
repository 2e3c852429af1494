// Carillon · SandboxConnection.swift
// SPDX-License-Identifier: Apache-2.0

/// What the endpoints remember of one connection, besides its requests.
struct SandboxConnection {
    /// Whether the client may open many streams: it showed a valid provider token, or does not speak to APNs.
    var isTrusted = false
    /// The APNs provider token that was accepted last.
    var providerToken: ProviderToken?
}
