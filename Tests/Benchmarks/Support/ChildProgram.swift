// Carillon · ChildProgram.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Synchronization

/// A program that a benchmark runs beside itself, with what it prints in a file.
///
/// The kernel kills it if the benchmark dies.
final class ChildProgram: Sendable {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    private struct State {
        var pid: pid_t?
        /// What it exited with; the signal's number, negative, if one ended it.
        var exit: Int?
        var startFailure: String?
    }

    let name: String
    let logFile: String
    private let logStart: UInt64
    private let state: Mutex<State>

    /// Starts `program`, a path.
    ///
    /// - Parameters:
    ///   - core: where all of its threads run; anywhere if nil.
    ///   - environment: added to this process's own.
    ///   - logFile: gets the standard output and error at its end.
    init(
        _ program: String,
        _ arguments: [String] = [],
        core: Int? = nil,
        environment: [String: String] = [:],
        logFile: String
    ) async throws {
        let state = State()
        self.name = URL(fileURLWithPath: program).lastPathComponent
        self.logFile = logFile
        self.state = Mutex(state)
        if !FileManager.default.fileExists(atPath: logFile) {
            _ = FileManager.default.createFile(atPath: logFile, contents: nil)
        }
        guard let log = FileHandle(forWritingAtPath: logFile) else {
            throw Failure(description: "\(logFile) cannot be written")
        }
        self.logStart = try log.seekToEnd()
        // The kernel's death signal is tied to the thread that starts the program, so that thread stays to wait for it.
        Thread.detachNewThread { [weak self] in
            // What this thread blocks, the program would never hear.
            var none = sigset_t()
            sigemptyset(&none)
            pthread_sigmask(SIG_SETMASK, &none, nil)
            let process = Process()
            process.executableURL = URL(fileURLWithPath: "/usr/bin/setpriv")
            let placement = core.map { ["/usr/bin/taskset", "-c", "\($0)"] } ?? []
            process.arguments = ["--pdeathsig", "KILL", "--"] + placement + [program] + arguments
            process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
            process.standardInput = FileHandle.nullDevice
            process.standardOutput = log
            process.standardError = log
            do {
                try process.run()
            } catch {
                self?.state.withLock { $0.startFailure = "\(error)" }
                return
            }
            self?.state.withLock { $0.pid = process.processIdentifier }
            process.waitUntilExit()
            let status = Int(process.terminationStatus)
            let exit = process.terminationReason == .uncaughtSignal ? -status : status
            self?.state.withLock { $0.exit = exit }
        }
        while try self.state.withLock({ state in
            if let reason = state.startFailure { throw Failure(description: "\(program) does not start: \(reason)") }
            return state.pid == nil
        }) {
            // The thread that starts the program leaves its id here, within moments.
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    deinit {
        self.send(SIGKILL)
    }

    var pid: Int { self.state.withLock { Int($0.pid ?? 0) } }

    /// What it exited with, a signal's number negative; nil while it runs.
    var exit: Int? { self.state.withLock { $0.exit } }

    func send(_ signal: Int32) {
        self.state.withLock { state in
            if state.exit == nil, let pid = state.pid { _ = kill(pid, signal) }
        }
    }

    /// Ends it and waits until it is gone; kills it after a minute.
    func end(by signal: Int32 = SIGKILL) async throws {
        self.send(signal)
        let deadline = ContinuousClock.now + .seconds(60)
        while self.exit == nil {
            if ContinuousClock.now > deadline { self.send(SIGKILL) }
            // The thread that waits for the program leaves its end here.
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    /// The first line of its output that begins with `prefix`; waits for it.
    ///
    /// - Throws: ``Failure`` if it ends before, or says nothing for 30 s.
    func line(_ prefix: String) async throws -> String {
        let deadline = ContinuousClock.now + .seconds(30)
        while true {
            let exit = self.exit
            let lines = self.log.split(separator: "\n")
            if let line = lines.first(where: { $0.hasPrefix(prefix) }) { return String(line) }
            if exit != nil || ContinuousClock.now > deadline {
                let tail = lines.suffix(5).joined(separator: "\n")
                throw Failure(description: "\(self.name) did not say \"\(prefix)\": \(tail)")
            }
            // The program writes to a file, which is read until the line is there.
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    /// What it has printed.
    var log: String {
        guard let file = FileHandle(forReadingAtPath: self.logFile) else { return "" }
        defer { try? file.close() }
        try? file.seek(toOffset: self.logStart)
        return String(decoding: (try? file.readToEnd()) ?? Data(), as: UTF8.self)
    }
}
