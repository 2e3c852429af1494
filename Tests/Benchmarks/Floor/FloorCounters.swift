// Carillon · FloorCounters.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// The processor time of all programs, and the work of PostgreSQL, at one moment.
struct FloorCounters {
    /// Seconds of processor time, with the name of the program in reports as key.
    private let seconds: [String: Double]
    private let walBytes: Int64
    private let transactions: Int64

    /// Reads the counters of `programs` and of both stores, which must run on this machine.
    static func read(_ programs: [String: ChildProcess], in stack: ScratchStack) async throws -> FloorCounters {
        // Statistics of commits lag by up to ten seconds, so count the ids of transactions.
        let rows = try await stack.database.pool.query(
            """
            SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8,
                pg_snapshot_xmax(pg_current_snapshot())::text::int8
            """
        )
        guard let row = rows.first else { throw ValidationError("PostgreSQL returned no counters") }
        let servers = try await stack.servers()
        var seconds = programs.mapValues { CoreShare.seconds(of: $0.identifier) }
        seconds["postgres"] = try CoreShare.seconds(ofServer: servers.postmaster)
        seconds["redis"] = try CoreShare.seconds(ofServer: servers.redis)
        return FloorCounters(seconds: seconds, walBytes: try row.int8(0), transactions: try row.int8(1))
    }

    /// The microseconds of each program, and their sum without load and sandbox; the bytes of WAL;
    /// and the transactions that wrote, for 1,000 jobs.
    func perJob(since earlier: FloorCounters, jobs: Int) -> [String: Double] {
        let share = 1 / Double(jobs)
        var figures: [String: Double] = [:]
        var sum = 0.0
        for (name, seconds) in self.seconds {
            let used = (seconds - (earlier.seconds[name] ?? 0)) * 1_000_000 * share
            figures["\(name)_us"] = used
            if name != "load", name != "sandbox" { sum += used }
        }
        figures["cpu_us"] = sum
        figures["wal_bytes"] = Double(self.walBytes - earlier.walBytes) * share
        figures["commits_per_1000"] = Double(self.transactions - earlier.transactions) * share * 1_000
        return figures
    }
}

/// Counts the allocations and instructions of programs, which costs time, so no time is measured
/// with it.
struct FloorWork {
    let names: [String]
    let yardsticks: String
    let folder: String

    private func file(_ name: String) -> String { "\(self.folder)/\(name).allocations" }

    /// The settings that make a program count its allocations.
    func settings(_ name: String) -> [String: String] {
        ["LD_PRELOAD": "\(self.yardsticks)/floor-allocations.so", "COUNT_ALLOCATIONS": self.file(name)]
    }

    /// Counts instructions from now on, too.
    func watch(_ programs: [String: ChildProcess]) async throws -> Watch {
        var instructions: [String: InstructionCounter] = [:]
        for (name, program) in programs {
            instructions[name] = try await InstructionCounter.attach(to: program, directory: self.folder)
        }
        return Watch(work: self, instructions: instructions)
    }

    struct Watch {
        fileprivate let work: FloorWork
        fileprivate let instructions: [String: InstructionCounter]

        /// The counts so far.
        func values() async throws -> [String: Double] {
            var values: [String: Double] = [:]
            for name in self.work.names {
                let bytes = try Data(contentsOf: URL(fileURLWithPath: self.work.file(name)))
                guard bytes.count >= 8 else { throw ValidationError("\(name) does not count its allocations") }
                values["\(name)_allocations"] = Double(bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) })
            }
            for (name, counter) in self.instructions {
                values["\(name)_instructions"] = try await counter.value()
            }
            return values
        }
    }
}

/// The instructions that a process executes in user mode, by `perf stat`.
struct InstructionCounter {
    private static let path = "/usr/bin/perf"

    private let perf: ChildProcess
    private let program: ChildProcess

    /// Counts from now on; returns nil without `perf` or without the counter, as on most virtual
    /// machines.
    static func attach(to program: ChildProcess, directory: String) async throws -> InstructionCounter? {
        guard FileManager.default.isExecutableFile(atPath: Self.path) else { return nil }
        let perf = try await ChildProcess.spawn(
            Self.path, ["stat", "-I", "100", "-x", ",", "-e", "instructions:u", "-p", "\(program.identifier)"],
            name: "perf-\(program.name)", directory: directory)
        let counter = InstructionCounter(perf: perf, program: program)
        return try await counter.value() == nil ? nil : counter
    }

    /// The count at the end of the current interval of 100 ms; nil if `perf` cannot count.
    func value() async throws -> Double? {
        let seen = self.intervals.count
        let deadline = ContinuousClock.now + .seconds(10)
        while self.intervals.count == seen {
            guard self.perf.exit == nil, self.program.exit == nil, ContinuousClock.now < deadline else { return nil }
            // Poll what perf writes.
            try await Task.sleep(for: .milliseconds(10))
        }
        let counts = self.intervals.compactMap { $0 }
        return counts.isEmpty ? nil : counts.reduce(0, +)
    }

    /// The counts of the intervals, as in `0.100126873,12345,,instructions:u,…`; nil where
    /// `<not supported>` stands.
    private var intervals: [Double?] {
        self.perf.errors().split(separator: "\n").filter { $0.contains("instructions") }.map { line in
            let fields = line.split(separator: ",", omittingEmptySubsequences: false)
            return fields.count > 1 ? Double(fields[1]) : nil
        }
    }
}
