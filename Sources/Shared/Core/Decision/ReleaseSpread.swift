// Carillon · ReleaseSpread.swift
// SPDX-License-Identifier: Apache-2.0

/// How long after the end of quiet hours what they held back goes out, so that not all of a zone is due at one moment.
///
/// The same user, end and lane give the same delay, whoever computes it and however often; of a user, all of a lane comes at
/// once, and so may become one summary. Another day has another order.
package enum ReleaseSpread {
    /// Longer than the delay of any lane.
    static let mostMinutes = 15

    /// The longest delay of a lane: none for what is critical.
    package static func longest(_ lane: Lane) -> Duration {
        switch lane {
        case .critical: .zero
        case .normal: .seconds(300)
        case .bulk: .seconds(900)
        }
    }

    /// The delay after an end, in whole milliseconds, and shorter than the lane's longest unless that is none.
    package static func delay(user: String, end: Timestamp, lane: Lane) -> Duration {
        let span = UInt64(self.longest(lane).components.seconds) * 1_000
        guard span > 0 else { return .zero }
        return .milliseconds(Int64(self.hash(user, end) % span))
    }

    private static func hash(_ user: String, _ end: Timestamp) -> UInt64 {
        let moment = stride(from: Int64(0), to: 64, by: 8).map { UInt8(truncatingIfNeeded: end.microseconds >> $0) }
        return FNV1a.hash64(moment, from: FNV1a.hash64(user.utf8))
    }
}
