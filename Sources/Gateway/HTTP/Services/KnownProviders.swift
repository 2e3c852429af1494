// Carillon · KnownProviders.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Synchronization

/// The known providers, for parsers that cannot wait for Redis.
///
/// Providers stay known until the process ends, even if Redis was emptied. At
/// ``ProviderRoster/bound`` no more are added.
package final class KnownProviders: Sendable {
    private let providers = Mutex(Provider.wellKnown)

    package init() {}

    /// The built-in providers, then the others in order of announcement.
    package var all: [Provider] { self.providers.withLock { $0 } }

    /// The providers that serve devices.
    package var ofDevices: [Provider] { self.all.filter(\.isOfDevices) }

    /// Adds announced providers that are not known yet.
    package func add(_ announced: [Provider]) {
        self.providers.withLock { known in
            for provider in announced where known.count < ProviderRoster.bound && !known.contains(provider) {
                known.append(provider)
            }
        }
    }
}
