// Carillon · PollMark.swift
// SPDX-License-Identifier: Apache-2.0

/// The hash of the query value that a client changes from poll to poll.
package struct PollMark: Sendable, Equatable {
    private let hash: UInt32

    /// Returns nil if the client sent no value.
    package init?(_ value: String?) {
        guard let value, !value.isEmpty else { return nil }
        self.hash = UInt32(truncatingIfNeeded: value.hashValue)
    }
}

/// Recognises a poll that a browser has sent again.
///
/// A browser repeats a GET on its own if the connection breaks before the answer's first byte. The
/// JavaScript clients of Socket.IO and SignalR give each poll a new mark, so a poll with the mark
/// of the previous one is such a repeat: the first answer was lost.
///
/// The mark is the time of sending, to the second in some clients, so polls in quick succession may
/// share one.
struct PollRepeats: Sendable {
    /// Polls with the same mark are a repeat only if they arrive at least this far apart.
    ///
    /// Different polls of the same second may arrive more than a second apart if the network delays
    /// the later one.
    private static let period: Milliseconds = 3_000

    private var last: PollMark?
    private var lastAt: Milliseconds
    /// Whether the client's marks differ; a constant mark says nothing.
    private var hasChanged = false

    init(first mark: PollMark? = nil, at now: Milliseconds = 0) {
        self.last = mark
        self.lastAt = now
    }

    /// Returns whether a poll repeats the previous one.
    mutating func isRepeat(_ mark: PollMark?, now: Milliseconds) -> Bool {
        defer { (self.last, self.lastAt) = (mark, now) }
        guard let mark, let last else { return false }
        if mark != last { self.hasChanged = true }
        return mark == last && self.hasChanged && now - self.lastAt >= Self.period
    }
}
