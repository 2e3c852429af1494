// Carillon · SoakLedger.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Records appended jobs and their arrivals, as seen by clients and the sandbox only.
final class SoakLedger: Sendable {
    /// A job for one user.
    private struct Entry {
        let isOnline: Bool
        /// When it was to be appended.
        let due: ContinuousClock.Instant
        /// The time until it was first on a socket, in seconds.
        var delay: Double?
        /// Arrivals by notification id, on sockets and as pushes; several ids mean that the job was
        /// stored twice.
        var bySocket: [String: Int] = [:]
        var byPush: [String: Int] = [:]
    }

    /// The final counts.
    struct Summary {
        var jobs = 0
        /// Jobs that never reached the socket of an online user, or were never pushed to an offline
        /// one.
        var lost: [Int] = []
        var bySocket = 0
        var byPush = 0
        var repeatedBySocket = 0
        var repeatedByPush = 0
        /// Jobs that arrived with more than one id.
        var storedTwice = 0
        /// Jobs pushed to users who have a socket.
        var fellBack = 0
        /// Arrivals at the wrong user, or of unknown jobs.
        var strange = 0
        /// Seconds from when a job was due until it was on a socket, sorted.
        var delays: [Double] = []
        /// The same of jobs that were due during a failover.
        var failoverDelays: [Double] = []
    }

    private struct State {
        /// The jobs; nil before they were due.
        var entries: [Entry?]
        var missing = 0
        var strange = 0
        var failovers: [Range<ContinuousClock.Instant>] = []
    }

    private let state: Mutex<State>
    /// The number of offline users, who come first.
    private let offline: Int
    private let users: Int

    /// - Parameters:
    ///   - jobs: the number of jobs.
    ///   - users: the number of users; job n goes to user n modulo this.
    ///   - offline: the number of users without a socket; they come first.
    init(jobs: Int, users: Int, offline: Int) {
        self.state = Mutex(State(entries: Array(repeating: nil, count: jobs)))
        self.users = users
        self.offline = offline
    }

    func user(ofJob job: Int) -> Int { job % self.users }

    /// Records a job before it is appended.
    ///
    /// - Parameter due: before now if its producer is late.
    func append(_ job: Int, due: ContinuousClock.Instant) {
        self.state.withLock { state in
            state.entries[job] = Entry(isOnline: self.user(ofJob: job) >= self.offline, due: due)
            state.missing += 1
        }
    }

    /// Records when a failover went on.
    func noteFailover(_ time: Range<ContinuousClock.Instant>) {
        self.state.withLock { $0.failovers.append(time) }
    }

    /// Records an arrival at a client of `user`.
    func noteSocket(job: Int, user: Int, id: String) {
        self.note(job, user) { entry in
            entry.bySocket[id, default: 0] += 1
            if entry.delay == nil { entry.delay = (.now - entry.due).inSeconds }
            return entry.isOnline && entry.bySocket.count == 1 && entry.bySocket[id] == 1
        }
    }

    /// Records a push for `user`.
    func notePush(job: Int, user: Int, id: String) {
        self.note(job, user) { entry in
            entry.byPush[id, default: 0] += 1
            return !entry.isOnline && entry.byPush.count == 1 && entry.byPush[id] == 1
        }
    }

    private func note(_ job: Int, _ user: Int, _ body: (inout Entry) -> Bool) {
        self.state.withLock { state in
            guard state.entries.indices.contains(job), var entry = state.entries[job],
                self.user(ofJob: job) == user
            else {
                state.strange += 1
                return
            }
            if body(&entry) { state.missing -= 1 }
            state.entries[job] = entry
        }
    }

    /// The number of jobs that have not reached their user.
    var missing: Int { self.state.withLock { $0.missing } }

    /// The number of jobs due before a moment that have not reached their user.
    func missing(before moment: ContinuousClock.Instant) -> Int {
        self.state.withLock { state in
            state.entries.lazy.compactMap(\.self)
                .count { $0.due < moment && ($0.isOnline ? $0.bySocket : $0.byPush).isEmpty }
        }
    }

    var summary: Summary {
        self.state.withLock { state in
            var summary = Summary()
            summary.strange = state.strange
            for (job, entry) in state.entries.enumerated() {
                guard let entry else { continue }
                summary.jobs += 1
                if let delay = entry.delay {
                    summary.delays.append(delay)
                    let isOfFailover = state.failovers.contains { $0.contains(entry.due) }
                    if isOfFailover { summary.failoverDelays.append(delay) }
                }
                let sockets = entry.bySocket.values.reduce(0, +)
                let pushes = entry.byPush.values.reduce(0, +)
                summary.bySocket += sockets
                summary.byPush += pushes
                summary.repeatedBySocket += sockets - entry.bySocket.count
                summary.repeatedByPush += pushes - entry.byPush.count
                if Set(entry.bySocket.keys).union(entry.byPush.keys).count > 1 { summary.storedTwice += 1 }
                if entry.isOnline, pushes > 0 { summary.fellBack += 1 }
                if (entry.isOnline ? sockets : pushes) == 0 { summary.lost.append(job) }
            }
            summary.delays.sort()
            summary.failoverDelays.sort()
            return summary
        }
    }
}
