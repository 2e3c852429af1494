// Carillon · StageClock.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Glibc
import Metrics

/// Where a dispatcher's own work on jobs goes: processor time by stage, counted once a batch.
///
/// What the clients of Redis and PostgreSQL spend is not in it; the process's time as a whole has that too.
struct StageClock: Sendable {
    /// From fields to jobs.
    static let decode = StageClock("decode")
    /// What is stored, with which channels.
    static let decide = StageClock("decide")
    /// What it says, from templates.
    static let word = StageClock("word")
    /// Which way it goes, and the frames for it.
    static let route = StageClock("route")
    /// The commands of what goes out.
    static let publish = StageClock("publish")

    private let seconds: FloatingPointCounter

    private init(_ stage: String) {
        self.seconds = FloatingPointCounter(label: "carillon.stage.cpu_seconds", dimensions: [("stage", stage)])
    }

    /// Does work that waits for nothing, and counts the time that its thread spends on it.
    func measure<Value, Failure: Error>(_ work: () throws(Failure) -> Value) throws(Failure) -> Value {
        let start = Self.threadTime()
        defer { self.seconds.increment(by: Self.threadTime() - start) }
        return try work()
    }

    private static func threadTime() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1_000_000_000
    }
}
