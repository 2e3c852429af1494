// Carillon · ProviderRoster.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Which providers there are: those that everybody knows, and those that dispatchers have announced.
///
/// A gateway has no providers built in, and looks here. What was announced stays, though no dispatcher has it any more: its
/// streams may hold work.
package struct ProviderRoster: Sendable {
    /// How many providers are taken.
    ///
    /// Of more, those are left out whose words come last: they are sent to all the same, but no device can be registered
    /// with them, surveys do not show them, and the retries of a user who is erased stay until they are due.
    package static let bound = 32

    let live: Live

    /// Says that there are these providers; doing it again changes nothing.
    package func announce(_ providers: [Provider]) async throws(RedisError) {
        guard !providers.isEmpty else { return }
        let words = providers.map { RedisArgument.text($0.rawValue) }
        _ = try await self.live.connection.send(["SADD", .text(self.live.keys.knownProviders)] + words).checked()
    }

    /// The providers that everybody knows, in their order, then the others by their words; what is no provider's word is
    /// passed over.
    package func all() async throws(RedisError) -> [Provider] {
        let wellKnown = Provider.wellKnown
        let words = try await self.live.connection.send("SMEMBERS", .text(self.live.keys.knownProviders)).strings()
        let others = Set(words.compactMap { Provider(rawValue: $0) }).subtracting(wellKnown)
        let inOrder = others.sorted { $0.rawValue < $1.rawValue }
        return wellKnown + inOrder.prefix(Self.bound - wellKnown.count)
    }
}
