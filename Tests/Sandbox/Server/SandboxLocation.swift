// Carillon · SandboxLocation.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Where a sandbox listens, which is known once it does.
final class SandboxLocation: Sendable {
    private let text = Mutex("")

    /// The TLS address, such as `https://127.0.0.1:40001`.
    var url: String {
        get { self.text.withLock { $0 } }
        set { self.text.withLock { $0 = newValue } }
    }
}
