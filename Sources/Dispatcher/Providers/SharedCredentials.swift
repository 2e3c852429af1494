// Carillon · SharedCredentials.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Credentials that all channels of one key have in common: Apple counts the tokens that are made with a key, whichever app
/// they are for, and takes no second one within 20 minutes on a connection.
package final class SharedCredentials: Sendable {
    /// Keys change seldom; beyond this, whatever was kept is made anew.
    private static let capacity = 100

    private let caches = Mutex<[String: CredentialCache]>([:])

    package init() {}

    /// The cache of a key's credential, made if there is none yet.
    func cache(of key: String, make: () -> CredentialCache) -> CredentialCache {
        self.caches.withLock { caches in
            if let known = caches[key] { return known }
            if caches.count >= Self.capacity { caches.removeAll() }
            let cache = make()
            caches[key] = cache
            return cache
        }
    }
}
