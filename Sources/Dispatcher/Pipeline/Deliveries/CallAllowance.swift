// Carillon · CallAllowance.swift
// SPDX-License-Identifier: Apache-2.0

/// How many calls one of several ways to a provider may have under way.
///
/// A stranger, which has answered nothing lately, gets a few, and all strangers together have a small part of the places, so
/// that those that hang fill no lane. With each answer a way may have twice as many as long as it wants more.
///
/// Pure: what strangers have together is handed in and changed.
struct CallAllowance: Sendable {
    /// What all ways to a provider go by.
    struct Bounds: Sendable {
        /// A stranger's calls.
        let opening: Int
        /// The calls of all strangers.
        let strangers: Int
        /// The calls of any way.
        let most: Int

        /// - Parameter calls: how many to the provider are under way at most.
        init(calls: Int) {
            self.most = calls * 3 / 4
            self.opening = min(self.most, max(8, calls / 64))
            self.strangers = max(self.opening, calls / 10)
        }
    }

    private var size = 0
    /// How many more calls were wanted than there was room for.
    private var wanted = 0
    /// Those of the calls under way that count as a stranger's.
    private var strange = 0

    /// How many calls may be under way; of one that has become a stranger those that are count as a stranger's from now on.
    mutating func room(isKnown: Bool, inFlight: Int, _ bounds: Bounds, strangers: inout Int) -> Int {
        if isKnown {
            self.size = max(self.size, bounds.opening)
        } else {
            self.size = bounds.opening
            strangers += inFlight - self.strange
            self.strange = inFlight
        }
        return self.size
    }

    /// Notes that there was no room for a call.
    mutating func want(_ bounds: Bounds) {
        self.wanted = min(self.wanted + 1, bounds.most)
    }

    /// Notes a stranger's call.
    mutating func begin(strangers: inout Int) {
        self.strange += 1
        strangers += 1
    }

    /// Notes that a call has ended; a way that has answered it is no stranger.
    mutating func end(isAnswered: Bool, _ bounds: Bounds, strangers: inout Int) {
        guard isAnswered else {
            if self.strange > 0 {
                self.strange -= 1
                strangers -= 1
            }
            return
        }
        strangers -= self.strange
        self.strange = 0
        guard self.wanted > 0 else { return }
        let larger = min(bounds.most, max(self.size, bounds.opening) * 2)
        self.wanted = max(0, self.wanted - (larger - self.size))
        self.size = larger
    }
}
