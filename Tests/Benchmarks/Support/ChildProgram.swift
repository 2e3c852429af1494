// Carillon · ChildProgram.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Synchronization

/// A child process of a benchmark, with its output in a file.
///
/// The kernel kills it when the benchmark dies.
final class ChildProgram: Sendable {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    private struct State {
        var pid: pid_t?
        /// The exit code, or the negative number of the signal that ended the process.
        var exit: Int?
        var startFailure: String?
    }

    let name: String
    let logFile: String
    private let logStart: UInt64
    private let state: Mutex<State>

    /// Starts the program at the path `program`.
    ///
    /// - Parameters:
    ///   - core: the core for all its threads; any if nil.
    ///   - environment: added to this process's environment.
    ///   - logFile: the file to which its output and errors are appended.
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
        // The parent-death signal is tied to the thread that forked, so this thread stays until the
        // exit.
        Thread.detachNewThread { [weak self] in
            do {
                let pid = try Spawn.start(
                    "setpriv", words, environment: variables, output: logFile, errors: logFile)
                self?.state.withLock { $0.pid = pid }
                Spawn.wait(for: pid)
                // The process is reaped under the lock, so its id cannot be reused before that.
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
            if let reason = state.startFailure { throw Failure(description: "cannot start \(program): \(reason)") }
            return state.pid == nil
        }) {
            // Wait for the thread to store the process id.
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    deinit {
        self.send(SIGKILL)
    }

    var pid: Int { self.state.withLock { Int($0.pid ?? 0) } }

    /// The exit code, or the negative number of a signal; nil while it runs.
    var exit: Int? { self.state.withLock { $0.exit } }

    func send(_ signal: Int32) {
        self.state.withLock { state in
            if state.exit == nil, let pid = state.pid { _ = kill(pid, signal) }
        }
    }

    /// Sends a signal and waits for the exit; kills the process after a minute.
    func end(by signal: Int32 = SIGKILL) async throws {
        self.send(signal)
        let deadline = ContinuousClock.now + .seconds(60)
        while self.exit == nil {
            if ContinuousClock.now > deadline { self.send(SIGKILL) }
            // Poll, because the waiting thread only stores the exit.
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    /// Waits for a line of output that begins with `prefix`, and returns it.
    ///
    /// - Throws: ``Failure`` if the process ends first or after `limit`.
    func line(_ prefix: String, within limit: Duration = .seconds(30)) async throws -> String {
        let deadline = ContinuousClock.now + limit
        while true {
            let exit = self.exit
            let lines = self.log.split(separator: "\n")
            if let line = lines.first(where: { $0.hasPrefix(prefix) }) { return String(line) }
            if exit != nil || ContinuousClock.now > deadline {
                let tail = lines.suffix(5).joined(separator: "\n")
                throw Failure(description: "\(self.name) did not print \"\(prefix)\": \(tail)")
            }
            // Poll the file that the process writes to.
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    /// The output so far.
    var log: String {
        guard let file = FileHandle(forReadingAtPath: self.logFile) else { return "" }
        defer { try? file.close() }
        try? file.seek(toOffset: self.logStart)
        return String(decoding: (try? file.readToEnd()) ?? Data(), as: UTF8.self)
    }
}
