// Carillon · Fuzzer.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import Support

/// Mutates inputs, runs them and keeps those with a new kind of result.
struct Fuzzer {
    struct Report: CustomStringConvertible {
        var runs = 0
        var kinds = 0
        var inputs = 0
        /// Resident memory after the warm-up and at the end, in kB.
        var memory: (before: Int, after: Int) = (0, 0)
        var fault: String?

        var description: String {
            "\(self.runs) runs, \(self.kinds) kinds of outcome, \(self.inputs) inputs kept, "
                + "memory \(self.memory.before / 1024) to \(self.memory.after / 1024) MB"
        }
    }

    /// The number of kept inputs; beyond it a new input replaces a random one.
    private static let mostInputs = 2_048
    private static let longestInput = 8_192
    /// The number of runs until caches and allocators are warm.
    private static let warmUp = 5_000
    /// The largest growth of memory after the warm-up, in kB.
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

    /// Runs until the time is up or a check fails.
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

/// A parser of untrusted bytes under test.
protocol FuzzTarget {
    /// Tokens that are meaningful to the parser.
    var dictionary: [String] { get }

    /// Parses an input and checks the invariants.
    func run(_ input: [UInt8]) async -> FuzzOutcome
}

/// The result of an input.
struct FuzzOutcome {
    /// Inputs with a new kind are kept for further mutation.
    var kind: String
    /// A violated invariant, if any.
    var fault: String?

    init(_ kind: String, fault: String? = nil) {
        self.kind = kind
        self.fault = fault
    }
}

/// Mutates inputs: flips bits, changes bytes, cuts, splices, inserts tokens.
struct Mutator {
    private static let numbers = ["0", "-1", "1", "127", "255", "65535", "2147483648", "9223372036854775807", "1e309"]
    /// Extremes of two and eight bytes; after 0xFE and 0xFF, as the length of a WebSocket frame.
    private static let binaryNumbers: [[UInt8]] = [
        [0xFF, 0xFF], [0x7F] + [UInt8](repeating: 0xFF, count: 7), [0x80] + [UInt8](repeating: 0, count: 7),
        [0xFE, 0xFF, 0xFF], [0xFF, 0x7F] + [UInt8](repeating: 0xFF, count: 7),
        [UInt8](repeating: 0xFF, count: 9),
    ]

    let dictionary: [[UInt8]]
    let longest: Int

    init(dictionary: [[UInt8]], longest: Int) {
        self.dictionary = dictionary + Self.numbers.map { Array($0.utf8) } + Self.binaryNumbers
        self.longest = longest
    }

    func mutate(_ input: [UInt8], _ other: [UInt8], _ generator: inout SeededGenerator) -> [UInt8] {
        var bytes = input
        for _ in 0..<(1 << Int.random(in: 0...3, using: &generator)) { self.step(&bytes, other, &generator) }
        return Array(bytes.prefix(self.longest))
    }

    private func step(_ bytes: inout [UInt8], _ other: [UInt8], _ generator: inout SeededGenerator) {
        let place = Int.random(in: 0...bytes.count, using: &generator)
        let range = place..<Int.random(in: place...min(bytes.count, place + 32), using: &generator)
        switch Int.random(in: 0...9, using: &generator) {
        case 0 where place < bytes.count: bytes[place] ^= 1 << UInt8.random(in: 0...7, using: &generator)
        case 1 where place < bytes.count: bytes[place] = .random(in: 0...255, using: &generator)
        case 2: bytes.insert(.random(in: 0...255, using: &generator), at: place)
        case 3: bytes.removeSubrange(range)
        case 4: bytes.removeSubrange(place...)
        case 5: bytes.insert(contentsOf: bytes[range], at: place)
        case 6: bytes.replaceSubrange(place..., with: other.suffix(other.count / 2))
        case 7: bytes.insert(contentsOf: other.prefix(64), at: place)
        case 8: bytes.replaceSubrange(range, with: self.word(&generator))
        default: bytes.insert(contentsOf: self.word(&generator), at: place)
        }
    }

    private func word(_ generator: inout SeededGenerator) -> [UInt8] {
        self.dictionary.randomElement(using: &generator) ?? []
    }
}

/// The initial inputs: small files, one per input.
enum Corpus {
    static func load(folder: String) throws -> [[UInt8]] {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: folder), !names.isEmpty else {
            throw ValidationError("no inputs in \(folder); run in the checkout or set --corpus")
        }
        // Sorted, so that the same seed produces the same inputs.
        return names.sorted().compactMap { FileManager.default.contents(atPath: "\(folder)/\($0)") }.map { Array($0) }
    }
}
