// Carillon · LocalDelivery.swift
// SPDX-License-Identifier: Apache-2.0

/// Parts users by their zones, for what each of them gets when clocks there show a time.
package struct LocalDelivery: Sendable {
    /// Users of one zone, and when it is time there.
    package struct Part: Sendable, Equatable {
        package let zone: String
        /// What clocks there show then; the day is said.
        package let wall: WallTime
        package let at: Timestamp
        package let users: [String]
    }

    /// The parts, by zone, in the order of their names.
    package private(set) var parts: [Part] = []
    /// Users who were counted to the default zone because theirs is unknown.
    package private(set) var unknownZones = 0
    /// Users for whom it was time too long ago.
    package private(set) var late = 0

    /// - Parameters:
    ///   - users: users with their zones; nil for those who have set none.
    ///   - wall: the time; without a day today, and where it is past tomorrow.
    ///   - defaultZone: the zone of users who have none, or one that is unknown.
    ///   - lateness: how long ago it may have been time; nil for any length, which is then made good for at once.
    ///   - rules: the rules of a zone.
    package init(
        _ users: [(user: String, zone: String?)],
        at wall: WallTime,
        now: Timestamp,
        defaultZone: String,
        lateness: Duration? = nil,
        rules: (String) -> ZoneRules?
    ) {
        var known: [String: ZoneRules] = [:]
        var unknown: Set<String> = []
        var byZone: [String: [String]] = [:]
        for (user, zone) in users {
            var name = zone ?? defaultZone
            if known[name] == nil, !unknown.contains(name) {
                if let found = rules(name) { known[name] = found } else { unknown.insert(name) }
            }
            if known[name] == nil {
                if zone != nil { self.unknownZones += 1 }
                name = defaultZone
            }
            byZone[name, default: []].append(user)
        }
        for (zone, users) in byZone.sorted(by: { $0.key < $1.key }) {
            let (day, moment) = Self.moment(wall, in: known[zone] ?? rules(zone) ?? .utc, now: now)
            if let lateness, now - moment > lateness {
                self.late += users.count
                continue
            }
            self.parts.append(
                Part(zone: zone, wall: WallTime(day: day, time: wall.time), at: moment, users: users)
            )
        }
    }

    private static func moment(_ wall: WallTime, in rules: ZoneRules, now: Timestamp) -> (day: Int, at: Timestamp) {
        if let day = wall.day {
            return (day, rules.instant(CivilDate(daysSinceEpoch: day), minutes: wall.time.minutes))
        }
        let today = rules.local(at: now).date
        let moment = rules.instant(today, minutes: wall.time.minutes)
        if moment >= now { return (today.daysSinceEpoch, moment) }
        let tomorrow = today.adding(days: 1)
        return (tomorrow.daysSinceEpoch, rules.instant(tomorrow, minutes: wall.time.minutes))
    }
}
