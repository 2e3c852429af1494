// Carillon · FuzzCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// The program `fuzz`: feeds what reads bytes from outside with mutated inputs.
@main
struct FuzzCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fuzz",
        abstract: "Feeds a parser with mutated inputs.",
        discussion: """
            Ends with 1 where a check failed, an input took too long, or memory grew. The input that is under way lies in a
            file all the time, so that it is there after a crash, and `--input` runs it again.

            Targets: \(FuzzTargets.names.joined(separator: ", "))

            Examples:
              fuzz websocket --seconds 60
              fuzz token --seed 7
              fuzz resp --input /tmp/carillon-fuzz-resp.input
            """
    )

    @Argument(help: ArgumentHelp("What is fed.", valueName: "target"))
    var target: String

    @Option(help: "How long.")
    var seconds = 60

    @Option(help: "The same seed makes the same inputs.")
    var seed: UInt64 = 1

    @Option(help: ArgumentHelp("The folder with a folder of first inputs for each target.", valueName: "folder"))
    var corpus = "Tests/Fuzz/Corpus"

    @Option(help: ArgumentHelp("Runs this input alone.", valueName: "file"))
    var input: String?

    func validate() throws {
        guard FuzzTargets.names.contains(self.target) else {
            throw ValidationError("the target must be one of " + FuzzTargets.names.joined(separator: ", "))
        }
        guard (1...86_400).contains(self.seconds) else { throw ValidationError("--seconds must be from 1 to 86400") }
    }

    func run() async throws {
        guard let target = FuzzTargets.make(self.target) else { return }
        if let input {
            guard let data = FileManager.default.contents(atPath: input) else {
                throw ValidationError("\(input) cannot be read")
            }
            let outcome = await target.run(Array(data))
            print("\(outcome.kind)\(outcome.fault.map { ", FAULT: \($0)" } ?? "")")
            if outcome.fault != nil { throw ExitCode(1) }
            return
        }
        let seeds = try Corpus.load(folder: "\(self.corpus)/\(self.target)")
        let record = try InputRecord(target: self.target)
        let watchdog = Watchdog(limit: .seconds(5), target: self.target, file: record.path)
        watchdog.start()
        var fuzzer = Fuzzer(target: target, seeds: seeds, seed: self.seed, record: record, watchdog: watchdog)
        let report = await fuzzer.run(for: .seconds(self.seconds))
        print("\(self.target) seed \(self.seed): \(report)")
        if let fault = report.fault {
            print("FAULT: \(fault); the input is in \(record.path)")
            throw ExitCode(1)
        }
        record.remove()
    }
}
