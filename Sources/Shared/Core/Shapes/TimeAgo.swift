// Carillon · TimeAgo.swift
// SPDX-License-Identifier: Apache-2.0

/// How long ago something was, in a few English letters for a list's margin: `just now`, `5m ago`, `3h ago`, `2d ago`,
/// `1w ago`, `4mo ago`, `1y ago`.
package enum TimeAgo {
    private static let minute: Int64 = 60
    private static let hour = 60 * Self.minute
    private static let day = 24 * Self.hour
    private static let week = 7 * Self.day
    private static let month = 30 * Self.day
    private static let year = 365 * Self.day

    /// The text for a moment as seen from `now`; what lies ahead counts as now.
    package static func text(_ moment: Timestamp, now: Timestamp) -> String {
        let seconds = (now - moment).components.seconds
        return switch seconds {
        case ..<Self.minute: "just now"
        case ..<Self.hour: "\(seconds / Self.minute)m ago"
        case ..<Self.day: "\(seconds / Self.hour)h ago"
        case ..<Self.week: "\(seconds / Self.day)d ago"
        case ..<Self.month: "\(seconds / Self.week)w ago"
        case ..<Self.year: "\(seconds / Self.month)mo ago"
        default: "\(seconds / Self.year)y ago"
        }
    }
}
