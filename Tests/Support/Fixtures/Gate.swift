// Carillon · Gate.swift
// SPDX-License-Identifier: Apache-2.0

/// Holds tasks back until it is opened, once and for all.
package actor Gate {
    private var isOpen = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    package init() {}

    /// Lets everyone through, now and later.
    package func open() {
        self.isOpen = true
        for continuation in self.waiting { continuation.resume() }
        self.waiting = []
    }

    /// Returns when the gate is open; cancellation does not end the wait.
    package func wait() async {
        guard !self.isOpen else { return }
        await withCheckedContinuation { self.waiting.append($0) }
    }
}
