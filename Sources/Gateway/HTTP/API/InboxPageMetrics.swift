// Carillon · InboxPageMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics

/// What pages of inboxes count, each made once.
enum InboxPageMetrics {
    /// Answered as they were kept.
    static let kept = Self.answered("kept")
    /// Read anew, as the inbox had changed.
    static let changed = Self.answered("changed")
    /// Read, as none was kept.
    static let read = Self.answered("read")
    static let dropped = Counter(label: "carillon.inbox.pages.dropped")
    static let bytes = Gauge(label: "carillon.inbox.pages.bytes")

    private static func answered(_ from: String) -> Counter {
        Counter(label: "carillon.inbox.pages", dimensions: [("from", from)])
    }
}
