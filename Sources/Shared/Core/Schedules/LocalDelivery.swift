// Carillon · LocalDelivery.swift
// SPDX-License-Identifier: Apache-2.0

/// Groups users by zone for a delivery at a local time.
package struct LocalDelivery: Sendable {
    /// The users of one zone, and the moment of the local time there.
    package struct Part: Sendable, Equatable {
        package let zone: String
        /// The local time, with its day.
        package let wall: WallTime
        package let at: Timestamp
        package let users: [String]
    }

    /// One part per zone, sorted by zone name.
    package private(set) var parts: [Part] = []
    /// The number of users with an unknown zone, who got the default zone.
    package private(set) var unknownZones = 0
    /// The number of users for whom the time passed too long ago.
    package private(set) var late = 0

    /// - Parameters:
    ///   - users: users with their zones; nil for no zone.
    ///   - wall: the local time; without a day, today, or tomorrow where it has passed.
    ///   - defaultZone: the zone of users without a known one.
    ///   - lateness: how long ago the time may have passed; nil for no limit.
    ///   - rules: looks up the rules of a zone.
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
