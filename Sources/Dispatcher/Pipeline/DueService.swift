// Carillon · DueService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Operations
import ServiceLifecycle
import Storage

/// Asks PostgreSQL what is due next, and wakes the services that handle it.
///
/// One statement a second serves schedules, follow-ups, digests, replays and broadcasts, whichever
/// process stored them.
package struct DueService: Service {
    /// The shortest interval, after a service has done its work.
    private static let interval: Duration = .milliseconds(250)
    private static let longestInterval: Duration = .seconds(1)
    /// How often the services look themselves, in case this one cannot.
    static let patience: Duration = .seconds(10)

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        await self.dispatcher.untilShutdown("cannot read due times; services poll every 10 s") {
            self.ring(try await self.dispatcher.database.due.next())
        } wait: {
            await self.dispatcher.alarms.due.wait(
                atLeast: Self.interval, atMost: Self.longestInterval, now: self.dispatcher.clock.now)
        }
    }

    private func ring(_ due: DueStore.Moments) {
        let now = self.dispatcher.now()
        let alarms = self.dispatcher.alarms
        // The next look finds later moments again.
        let others = [
            (alarms.followUps, due.followUp), (alarms.digests, due.digest), (alarms.replays, due.replay),
        ]
        for (alarm, moment) in Array(zip(alarms.schedules, due.schedules)) + others {
            guard let moment, moment <= now + Self.longestInterval else { continue }
            alarm.schedule(at: moment)
        }
        if due.hasBroadcast { for alarm in alarms.broadcasts { alarm.schedule(at: now) } }
    }
}

extension Dispatcher {
    /// Waits until PostgreSQL has work for a service again.
    ///
    /// - Parameter shortest: how long to wait in any case, so that work gathers.
    func wait(for alarm: Alarm, atLeast shortest: Duration) async {
        // More may be due now, or soon.
        self.alarms.due.schedule(at: self.now())
        await alarm.wait(atLeast: shortest, atMost: DueService.patience, now: self.clock.now)
    }
}
