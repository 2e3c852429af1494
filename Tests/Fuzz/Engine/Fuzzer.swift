// Carillon · Fuzzer.swift
// SPDX-License-Identifier: Apache-2.0

import Support

/// Mutates inputs, runs them, and keeps those that bring about what was not seen before.
struct Fuzzer {
    struct Report: CustomStringConvertible {
        var runs = 0
        var kinds = 0
        var inputs = 0
        /// Kilobytes of resident memory, after the first runs and at the end.
        var memory: (before: Int, after: Int) = (0, 0)
        var fault: String?

        var description: String {
            "\(self.runs) runs, \(self.kinds) kinds of outcome, \(self.inputs) inputs kept, "
                + "memory \(self.memory.before / 1024) to \(self.memory.after / 1024) MB"
        }
    }

    /// Inputs that are kept; at the bound a new one takes a random one's place.
    private static let mostInputs = 2_048
    private static let longestInput = 8_192
    /// Runs until caches and allocators have what they keep.
    private static let warmUp = 5_000
    /// Kilobytes by which memory may grow after that.
    private static let allowedGrowth = 128 * 1024

    private let target: any FuzzTarget
    private let record: InputRecord
    private let watchdog: Watchdog
    private var generator: SeededGenerator
    private var inputs: [[UInt8]]
    private var kinds: Set<String> = []

    init(target: any FuzzTarget, seeds: [[UInt8]], seed: UInt64, record: InputRecord, watchdog: Watchdog) {
        self.target = target
        self.inputs = seeds.isEmpty ? [[]] : seeds
        self.generator = SeededGenerator(seed: seed)
        self.record = record
        self.watchdog = watchdog
    }

    /// Runs until the time is over or a check fails.
    mutating func run(for duration: Duration) async -> Report {
        var report = Report()
        let end = ContinuousClock.now + duration
        for seed in self.inputs {
            report.fault = await self.run(seed, &report)
            if report.fault != nil { return report }
        }
        let mutator = Mutator(dictionary: self.target.dictionary.map { Array($0.utf8) }, longest: Self.longestInput)
        while ContinuousClock.now < end {
            let first = self.inputs.randomElement(using: &self.generator) ?? []
            let second = self.inputs.randomElement(using: &self.generator) ?? []
            report.fault = await self.run(mutator.mutate(first, second, &self.generator), &report)
            if report.fault != nil { return report }
            if report.runs == Self.warmUp { report.memory.before = ResidentMemory.kilobytes() }
        }
        report.memory.after = ResidentMemory.kilobytes()
        if report.memory.before > 0, report.memory.after - report.memory.before > Self.allowedGrowth {
            report.fault = "memory grew by \((report.memory.after - report.memory.before) / 1024) MB"
        }
        return report
    }

    private mutating func run(_ input: [UInt8], _ report: inout Report) async -> String? {
        self.record.write(input)
        self.watchdog.begin()
        let outcome = await self.target.run(input)
        self.watchdog.end()
        report.runs += 1
        let bucket = Int.bitWidth - input.count.leadingZeroBitCount
        if self.kinds.count < 100_000, self.kinds.insert("\(outcome.kind)/\(bucket)").inserted {
            if self.inputs.count < Self.mostInputs {
                self.inputs.append(input)
            } else {
                self.inputs[Int.random(in: 0..<self.inputs.count, using: &self.generator)] = input
            }
        }
        report.kinds = self.kinds.count
        report.inputs = self.inputs.count
        return outcome.fault
    }
}
