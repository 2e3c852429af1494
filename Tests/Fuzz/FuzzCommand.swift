// Carillon · FuzzCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// The program `fuzz`: feeds parsers of untrusted bytes with mutated inputs.
@main
struct FuzzCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fuzz",
        abstract: "Feeds a parser with mutated inputs.",
        discussion: """
            The exit code is 1 if a check failed, an input took too long, or memory grew. The current input is always
            in a file, so that it survives a crash; `--input` runs it again.

            Targets: \(FuzzTargets.names.joined(separator: ", "))

            Examples:
              fuzz websocket --seconds 60
              fuzz token --seed 7
              fuzz resp --input /tmp/carillon-fuzz-resp.input
            """
    )

    @Argument(help: ArgumentHelp("Parser to test.", valueName: "target"))
    var target: String

    @Option(help: "Duration in seconds.")
    var seconds = 60

    @Option(help: "Seed; the same seed produces the same inputs.")
    var seed: UInt64 = 1

    @Option(help: ArgumentHelp("Folder with a folder of initial inputs for each target.", valueName: "folder"))
    var corpus = "Tests/Fuzz/Corpus"

    @Option(help: ArgumentHelp("Run only this input.", valueName: "file"))
    var input: String?

    func validate() throws {
        guard FuzzTargets.names.contains(self.target) else {
            throw ValidationError("target: not one of " + FuzzTargets.names.joined(separator: ", "))
        }
        guard (1...86_400).contains(self.seconds) else { throw ValidationError("--seconds: outside 1 to 86400") }
    }

    func run() async throws {
        guard let target = FuzzTargets.make(self.target) else { return }
        if let input {
            guard let data = FileManager.default.contents(atPath: input) else {
                throw ValidationError("--input: cannot read \(input)")
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
            print("FAULT: \(fault); see \(record.path)")
            throw ExitCode(1)
        }
        record.remove()
    }
}

/// All targets by name; a target's corpus is in the folder with its name.
enum FuzzTargets {
    static let names = ["query", "resp", "signalr", "socketio", "token", "websocket"]

    static func make(_ name: String) -> (any FuzzTarget)? {
        switch name {
        case "query": QueryTarget()
        case "resp": RESPTarget()
        case "signalr": SignalRTarget()
        case "socketio": SocketIOTarget()
        case "token": TokenTarget()
        case "websocket": WebSocketTarget()
        default: nil
        }
    }
}
