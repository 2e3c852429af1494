// Carillon · Budget.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Counts connections or bytes over all connections of a process, up to a limit.
package final class Budget: Sendable {
    private let limit: Int
    private let count = Atomic(0)
    /// Whether a flood has raised the count since ``floodHasEnded()`` last returned true.
    private let isFlooded = Atomic(false)

    package init(limit: Int) {
        self.limit = limit
    }

    /// Counts an amount; false, without counting, if there is no room for all of it.
    func reserve(_ amount: Int = 1) -> Bool {
        let held = self.count.add(amount, ordering: .relaxed).newValue
        if held > self.limit / 16 { self.isFlooded.store(true, ordering: .relaxed) }
        guard held <= self.limit else {
            self.release(amount)
            return false
        }
        return true
    }

    func release(_ amount: Int = 1) {
        self.count.subtract(amount, ordering: .relaxed)
    }

    /// Reports the end of a flood, once: the count was above a sixteenth of the limit and is below
    /// a sixty-fourth.
    package func floodHasEnded() -> Bool {
        self.count.load(ordering: .relaxed) < self.limit / 64
            && self.isFlooded.exchange(false, ordering: .relaxed)
    }
}

/// The part of a budget that one connection or one body holds.
package struct BudgetShare {
    /// Bytes that are not counted, so that small bodies pass while others fill the budget; a
    /// connection itself costs as much.
    package static let uncounted = 4 * 1024

    private let budget: Budget
    private var counted = 0

    package init(of budget: Budget) {
        self.budget = budget
    }

    /// Sets the amount that is held; false, without change, if there is no room for it.
    package mutating func hold(_ amount: Int) -> Bool {
        let more = max(0, amount - Self.uncounted) - self.counted
        if more > 0, !self.budget.reserve(more) { return false }
        if more < 0 { self.budget.release(-more) }
        self.counted += more
        return true
    }

    /// Lowers the amount that is held, which cannot fail.
    mutating func shrink(to amount: Int) { _ = self.hold(amount) }

    /// Releases the whole amount.
    package mutating func clear() { self.shrink(to: 0) }
}

/// Counts what each address holds open, up to a limit.
///
/// Its size is bounded by the open connections.
package final class AddressLimiter: Sendable {
    private let limit: Int
    private let counts = Mutex<[[UInt8]: Int]>([:])

    package init(limit: Int) {
        self.limit = limit
    }

    /// Counts one more; false, without counting, if the address has its share already.
    func reserve(_ address: ClientAddress) -> Bool {
        self.counts.withLock { counts in
            let count = counts[address.share, default: 0]
            guard count < self.limit else { return false }
            counts[address.share] = count + 1
            return true
        }
    }

    func release(_ address: ClientAddress) {
        self.counts.withLock { counts in
            guard let count = counts[address.share] else { return }
            counts[address.share] = count > 1 ? count - 1 : nil
        }
    }
}
