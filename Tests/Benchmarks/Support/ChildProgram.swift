// Carillon · ChildProgram.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
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
        self.logStart = (try? FileManager.default.attributesOfItem(atPath: logFile)[.size] as? UInt64) ?? 0
        let placement = core.map { ["/usr/bin/taskset", "-c", "\($0)"] } ?? []
        let words = ["--pdeathsig", "KILL", "--"] + placement + [program] + arguments
        let variables = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        // The kernel's death signal is tied to the thread that starts the program, so that thread stays to wait for it.
        Thread.detachNewThread { [weak self] in
            do {
                let pid = try Spawn.start(
                    "setpriv", words, environment: variables, output: logFile, errors: logFile)
                self?.state.withLock { $0.pid = pid }
                Spawn.wait(for: pid)
                // Until it is collected, which happens under the lock, its id cannot be another's.
                guard let self else {
                    _ = Spawn.collect(pid)
                    return
                }
                self.state.withLock { state in
                    switch Spawn.collect(pid) {
                    case .code(let code): state.exit = Int(code)
                    case .signal(let signal): state.exit = -Int(signal)
                    }
                }
            } catch {
                self?.state.withLock { $0.startFailure = "\(error)" }
            }
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
