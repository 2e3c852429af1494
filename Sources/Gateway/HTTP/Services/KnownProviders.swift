// Carillon · KnownProviders.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Synchronization

/// The providers that a process has heard of, for what reads bodies and cannot wait for Redis.
///
/// What it has heard of stays until the process ends: a Redis that was emptied does not know it for a moment, and nobody is
/// to be refused for that. At ``ProviderRoster/bound`` no more are taken.
package final class KnownProviders: Sendable {
    private let providers = Mutex(Provider.wellKnown)

    package init() {}

    /// Those that everybody knows, then the others as they were heard of.
    package var all: [Provider] { self.providers.withLock { $0 } }

    /// Those that devices are registered with.
    package var ofDevices: [Provider] { self.all.filter(\.isOfDevices) }

    /// Notes providers that were announced; those that are known already change nothing.
    package func add(_ announced: [Provider]) {
        self.providers.withLock { known in
            for provider in announced where known.count < ProviderRoster.bound && !known.contains(provider) {
                known.append(provider)
            }
        }
    }
}
