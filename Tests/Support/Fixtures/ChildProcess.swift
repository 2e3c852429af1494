// Carillon · ChildProcess.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Synchronization

/// A program that a test runs beside itself.
///
/// It is killed when this object goes, and by the kernel if the test process dies.
package final class ChildProcess: Sendable {
    /// How a process ended.
    package enum Exit: Equatable, Sendable {
        case code(Int32)
        case signal(Int32)
    }

    /// Another user to run as, which only root may do.
    struct Account: Sendable {
        let user: uid_t
        let group: gid_t
    }

    // Apart from the object, as the thread that waits for the process must not keep the object alive.
    private final class Life: Sendable {
        let exit = Mutex<Exit?>(nil)
    }

    package let name: String
    package let identifier: Int32
    package let outputFile: String
    package let errorFile: String
    private let life: Life

    private init(name: String, identifier: Int32, outputFile: String, errorFile: String, life: Life) {
        self.name = name
        self.identifier = identifier
        self.outputFile = outputFile
        self.errorFile = errorFile
        self.life = life
    }

    deinit {
        self.send(SIGKILL)
    }

    /// Starts `program` with its output in `directory`, in the files `name.out` and `name.err`, which grow if they exist.
    ///
    /// - Parameters:
    ///   - program: a path, or a name to be found by PATH.
    ///   - environment: added to this process's own; an empty value takes a variable away.
    package static func spawn(
        _ program: String,
        _ arguments: [String] = [],
        name: String? = nil,
        environment: [String: String] = [:],
        directory: String
    ) async throws -> ChildProcess {
        try await Self.spawn(
            program, arguments, name: name, environment: environment, directory: directory, account: nil)
    }

    static func spawn(
        _ program: String,
        _ arguments: [String],
        name: String?,
        environment: [String: String],
        directory: String,
        account: Account?,
        deathSignal: String = "KILL"
    ) async throws -> ChildProcess {
        let name = name ?? URL(fileURLWithPath: program).lastPathComponent
        var variables = ProcessInfo.processInfo.environment
        for (key, value) in environment { variables[key] = value.isEmpty ? nil : value }
        var words = ["--pdeathsig", deathSignal]
        if let account { words += ["--reuid", "\(account.user)", "--regid", "\(account.group)", "--clear-groups"] }
        words += ["--", program] + arguments
        let files = (output: "\(directory)/\(name).out", errors: "\(directory)/\(name).err")
        let life = Life()
        let identifier = try await withCheckedThrowingContinuation {
            (continuation: CheckedContinuation<pid_t, any Error>) in
            // The kernel's death signal is tied to the thread that started the process, so that thread stays to wait for it.
            Thread.detachNewThread { [words, variables] in
                do {
                    let identifier = try Spawn.start(
                        "setpriv", words, environment: variables, output: files.output, errors: files.errors)
                    continuation.resume(returning: identifier)
                    Spawn.wait(for: identifier)
                    life.exit.withLock { $0 = Spawn.collect(identifier) }
                } catch {
                    continuation.resume(throwing: error)
                }
            }
        }
        return ChildProcess(
            name: name, identifier: identifier, outputFile: files.output, errorFile: files.errors, life: life)
    }

    /// How it ended; nil while it runs.
    package var exit: Exit? { self.life.exit.withLock { $0 } }

    /// Sends a signal, unless it has ended.
    package func send(_ signal: Int32) {
        self.life.exit.withLock { exit in
            // Until it is collected, which happens under this lock, its id cannot be another's.
            if exit == nil { _ = Glibc.kill(self.identifier, signal) }
        }
    }

    /// Waits for a line of its standard output that begins with `prefix`, and gives the line.
    ///
    /// - Throws: ``FixtureError`` if it ends first or the time is over.
    package func waitForLine(_ prefix: String, within limit: Duration = .seconds(30)) async throws -> String {
        try await eventualValue("\(self.name) prints \(prefix)", within: limit) {
            let exit = self.exit
            let lines = self.text(self.outputFile).split(separator: "\n", omittingEmptySubsequences: true)
            if let line = lines.first(where: { $0.hasPrefix(prefix) }) { return String(line) }
            if let exit { throw FixtureError("\(self.name) ended with \(exit): \(self.tail())") }
            return nil
        }
    }

    /// Waits until it has ended.
    ///
    /// - Throws: ``FixtureError`` if the time is over.
    @discardableResult
    package func waitForExit(within limit: Duration = .seconds(60)) async throws -> Exit {
        try await eventualValue("\(self.name) ends", within: limit) { self.exit }
    }

    /// Ends it by SIGTERM, and by SIGKILL if that takes longer than `limit`.
    @discardableResult
    package func stop(within limit: Duration = .seconds(60)) async throws -> Exit {
        self.send(SIGTERM)
        do {
            return try await self.waitForExit(within: limit)
        } catch {
            self.send(SIGKILL)
            return try await self.waitForExit()
        }
    }

    /// All that it has written to its standard output.
    package func output() -> String { self.text(self.outputFile) }

    /// All that it has written to its standard error.
    package func errors() -> String { self.text(self.errorFile) }

    /// The last lines of both.
    package func tail(_ count: Int = 10) -> String {
        [self.output(), self.errors()].flatMap { $0.split(separator: "\n").suffix(count) }.joined(separator: "\n")
    }

    private func text(_ file: String) -> String {
        guard let data = FileManager.default.contents(atPath: file) else { return "" }
        return String(decoding: data, as: UTF8.self)
    }
}
