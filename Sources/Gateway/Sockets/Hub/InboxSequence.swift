// Carillon · InboxSequence.swift
// SPDX-License-Identifier: Apache-2.0

/// Keeps one socket's inbox in order: drops what it has, holds what came too early.
struct InboxSequence {
    enum Verdict: Equatable {
        case send
        /// The client has it already.
        case known
        /// Something between is missing; try again when it came, or fill the hole.
        case hold
    }

    /// The newest version that the client was sent; nil before its first sync.
    private(set) var last: Int64?

    /// What to do with a change from `previous` to `version`.
    mutating func judge(previous: Int64, version: Int64) -> Verdict {
        guard let last else { return .hold }
        if version <= last { return .known }
        guard previous <= last else { return .hold }
        self.last = version
        return .send
    }

    /// The client was brought up to `version`.
    mutating func advance(to version: Int64) {
        self.last = max(self.last ?? version, version)
    }

    /// The client begins anew at `version`.
    mutating func reset(to version: Int64) {
        self.last = version
    }
}
