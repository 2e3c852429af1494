// Carillon · ClockFacts.swift
// SPDX-License-Identifier: Apache-2.0

/// How far other clocks are ahead of this machine's; nil where they could not be read.
package struct ClockFacts: Sendable, Equatable {
    private static let noticeable: Duration = .seconds(1)

    package var redis: Duration?
    package var database: Duration?
    /// From which on tokens are judged wrongly.
    package var tolerable: Duration

    package init(redis: Duration? = nil, database: Duration? = nil, tolerable: Duration = .seconds(30)) {
        self.redis = redis
        self.database = database
        self.tolerable = tolerable
    }

    /// What is to be said about them.
    package var findings: [Finding] {
        let clocks = [("Redis", self.redis), ("PostgreSQL", self.database)].compactMap { name, offset in
            offset.map { (name: name, offset: $0) }
        }
        guard let worst = clocks.max(by: { abs($0.offset) < abs($1.offset) }) else { return [] }
        let found = clocks.map { "\($0.name)'s is \(Self.text($0.offset))" }.joined(separator: ", ")
        let remedy = "keep all machines by NTP: timedatectl set-ntp true, or chrony"
        if abs(worst.offset) > self.tolerable { return [Finding(.fail, "clocks", found, mend: remedy)] }
        if abs(worst.offset) > Self.noticeable { return [Finding(.warn, "clocks", found, mend: remedy)] }
        return [Finding(.ok, "clocks", found)]
    }

    private static func text(_ offset: Duration) -> String {
        let milliseconds = offset.components.seconds * 1_000 + offset.components.attoseconds / 1_000_000_000_000_000
        return "\(milliseconds.magnitude) ms \(milliseconds < 0 ? "behind" : "ahead")"
    }
}

private func abs(_ duration: Duration) -> Duration { duration < .zero ? .zero - duration : duration }
