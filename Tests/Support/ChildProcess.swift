// Carillon · ChildProcess.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Synchronization

/// A program that a test runs as a child process.
///
/// It gets SIGKILL when this object is released, and from the kernel when the test process dies.
package final class ChildProcess: Sendable {
    /// The way that a process ended.
    package enum Exit: Equatable, Sendable {
        case code(Int32)
        case signal(Int32)
    }

    /// The user to run as; only root may change it.
    package struct Account: Sendable {
        let user: uid_t
        let group: gid_t
    }

    // Separate from the object: the waiting thread must not keep the object alive.
    private final class Life: Sendable {
        let exit = Mutex<Exit?>(nil)
    }

    /// A file to which the process appends.
    private struct Log {
        let file: String
        /// The length at the start, which an earlier process of the same name wrote.
        private let start: Int

        init(_ file: String) {
            self.file = file
            self.start = FileManager.default.contents(atPath: file)?.count ?? 0
        }

        var text: String {
            let data = FileManager.default.contents(atPath: self.file)?.dropFirst(self.start)
            return String(decoding: data ?? Data(), as: UTF8.self)
        }
    }

    package let name: String
    package let identifier: Int32
    private let logs: (output: Log, errors: Log)
    private let life: Life

    private init(name: String, identifier: Int32, logs: (output: Log, errors: Log), life: Life) {
        self.name = name
        self.identifier = identifier
        self.logs = logs
        self.life = life
    }

    deinit {
        self.send(SIGKILL)
    }

    /// Starts `program`; its output is appended to the files `name.out` and `name.err` in
    /// `directory`.
    ///
    /// - Parameters:
    ///   - program: a path, or a name to find in PATH.
    ///   - environment: added to this process's environment; an empty value removes a variable.
    ///   - account: nil for that of this process.
    ///   - deathSignal: the kernel's signal to it when this process dies.
    package static func spawn(
        _ program: String,
        _ arguments: [String] = [],
        name: String? = nil,
        environment: [String: String] = [:],
        directory: String,
        account: Account? = nil,
        deathSignal: String = "KILL"
    ) async throws -> ChildProcess {
        let name = name ?? URL(fileURLWithPath: program).lastPathComponent
        var variables = ProcessInfo.processInfo.environment
        for (key, value) in environment { variables[key] = value.isEmpty ? nil : value }
        var words = ["--pdeathsig", deathSignal]
        if let account { words += ["--reuid", "\(account.user)", "--regid", "\(account.group)", "--clear-groups"] }
        words += ["--", program] + arguments
        let logs = (output: Log("\(directory)/\(name).out"), errors: Log("\(directory)/\(name).err"))
        let life = Life()
        let identifier = try await withCheckedThrowingContinuation {
            (continuation: CheckedContinuation<pid_t, any Error>) in
            // The parent-death signal is tied to the thread that forked, so this thread stays until
            // the exit.
            Thread.detachNewThread { [words, variables] in
                do {
                    let identifier = try Spawn.start(
                        "setpriv", words, environment: variables, output: logs.output.file,
                        errors: logs.errors.file)
                    continuation.resume(returning: identifier)
                    Spawn.wait(for: identifier)
                    life.exit.withLock { $0 = Spawn.collect(identifier) }
                } catch {
                    continuation.resume(throwing: error)
                }
            }
        }
        return ChildProcess(name: name, identifier: identifier, logs: logs, life: life)
    }

    /// Runs `program` until it ends.
    ///
    /// - Throws: ``FixtureError`` with its last lines unless it ends with exit code 0.
    package static func run(
        _ program: String,
        _ arguments: [String],
        directory: String,
        account: Account? = nil
    ) async throws {
        let process = try await Self.spawn(program, arguments, directory: directory, account: account)
        guard try await process.waitForExit() == .code(0) else {
            throw FixtureError("\(process.name) failed: \(process.tail())")
        }
    }

    /// How the process ended; nil while it runs.
    package var exit: Exit? { self.life.exit.withLock { $0 } }

    /// Sends a signal if the process still runs.
    package func send(_ signal: Int32) {
        self.life.exit.withLock { exit in
            // The process is reaped under this lock, so its id cannot be reused before that.
            if exit == nil { _ = Glibc.kill(self.identifier, signal) }
        }
    }

    /// Waits for a line of standard output that begins with `prefix`, and returns that line.
    ///
    /// - Throws: ``FixtureError`` when the process ends first or the time is up.
    package func waitForLine(_ prefix: String, within limit: Duration = longestWait) async throws -> String {
        try await eventualValue("\(self.name) prints \(prefix)", within: limit) {
            let exit = self.exit
            let text = self.output()
            // A program that still runs may not have finished its last line.
            let end = exit == nil ? text.lastIndex(of: "\n") ?? text.startIndex : text.endIndex
            let lines = text[..<end].split(separator: "\n", omittingEmptySubsequences: true)
            if let line = lines.first(where: { $0.hasPrefix(prefix) }) { return String(line) }
            if let exit { throw FixtureError("\(self.name) ended with \(exit): \(self.tail())") }
            return nil
        }
    }

    /// Waits for the process to end.
    ///
    /// - Throws: ``FixtureError`` when the time is up.
    @discardableResult
    package func waitForExit(within limit: Duration = longestWait) async throws -> Exit {
        try await eventualValue("\(self.name) ends", within: limit) { self.exit }
    }

    /// Stops the process with `signal`, and with SIGKILL after `limit`.
    @discardableResult
    package func stop(by signal: Int32 = SIGTERM, within limit: Duration = longestWait) async throws -> Exit {
        self.send(signal)
        do {
            return try await self.waitForExit(within: limit)
        } catch {
            self.send(SIGKILL)
            return try await self.waitForExit()
        }
    }

    /// Everything that it has written to standard output so far.
    package func output() -> String { self.logs.output.text }

    /// Everything that it has written to standard error so far.
    package func errors() -> String { self.logs.errors.text }

    /// The last lines of standard output and of standard error.
    package func tail(_ count: Int = 10) -> String {
        [self.output(), self.errors()].flatMap { $0.split(separator: "\n").suffix(count) }.joined(separator: "\n")
    }

    /// The resident memory in bytes; 0 if the process has ended.
    package var residentMemory: Int { ProcessTable.memory(of: self.identifier)?.resident ?? 0 }
}

/// Starts programs with `posix_spawn`.
///
/// Foundation's `Process` can crash in a process with more than a thousand open files: it copies
/// 256 bytes of each name in `/proc/self/fd`, also where the buffer ends before.
package enum Spawn {
    /// Runs `program` until it ends, which blocks this thread.
    ///
    /// - Parameters:
    ///   - environment: added to this process's environment.
    ///   - errors: the file for standard error; nil for that of this process.
    /// - Returns: how it ended, and its standard output.
    package static func run(
        _ program: String,
        _ arguments: [String],
        environment: [String: String] = [:],
        errors: String? = "/dev/null"
    ) throws -> (exit: ChildProcess.Exit, output: String) {
        let directory = try TemporaryDirectory("spawn")
        defer { directory.remove() }
        let output = directory.file("output")
        let identifier = try Self.start(
            program, arguments, environment: ProcessInfo.processInfo.environment.merging(environment) { $1 },
            output: output, errors: errors)
        Self.wait(for: identifier)
        let exit = Self.collect(identifier)
        return (exit, String(decoding: FileManager.default.contents(atPath: output) ?? Data(), as: UTF8.self))
    }

    /// Starts `program`, found in PATH, in its own process group.
    ///
    /// - Parameters:
    ///   - environment: the complete environment.
    ///   - output: the file for standard output.
    ///   - errors: the file for standard error; nil for that of this process.
    /// - Returns: the id of the process.
    package static func start(
        _ program: String,
        _ arguments: [String],
        environment: [String: String],
        output: String,
        errors: String?
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        let append = O_WRONLY | O_CREAT | O_APPEND
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, append, 0o600)
        if let errors { posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, append, 0o600) }
        // Close inherited files: an inherited pipe would never reach end of file in its reader, and
        // sockets would count towards the limit of the child. Closing an unused number does no
        // harm.
        for file in STDERR_FILENO + 1...Self.highestFile() { posix_spawn_file_actions_addclose(&actions, file) }

        // Reset the signal mask and handlers of the test runner.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        var every = sigset_t()
        sigfillset(&every)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setsigdefault(&attributes, &every)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))

        // `posix_spawnp` reads these copies only during the call.
        var words: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) }
        var variables: [UnsafeMutablePointer<CChar>?] = environment.map { strdup("\($0.key)=\($0.value)") }
        defer { for word in words + variables { free(word) } }
        words.append(nil)
        variables.append(nil)
        var identifier = pid_t()
        let status = posix_spawnp(&identifier, program, &actions, &attributes, words, variables)
        guard status == 0 else { throw FixtureError("cannot start \(program): \(String(cString: strerror(status)))") }
        return identifier
    }

    /// An upper bound on the numbers of open files.
    private static func highestFile() -> CInt {
        var highest: CInt = 0
        if let folder = opendir("/proc/self/fd") {
            while let entry = readdir(folder) {
                let name = withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                }
                highest = max(highest, CInt(name) ?? 0)
            }
            closedir(folder)
        }
        // A margin for files that other threads open meanwhile.
        return highest + 1_024
    }

    /// Blocks until the process has ended; its id stays reserved until ``collect(_:)``.
    package static func wait(for identifier: pid_t) {
        var information = siginfo_t()
        while waitid(P_PID, id_t(identifier), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
    }

    /// Reaps a process that has ended.
    package static func collect(_ identifier: pid_t) -> ChildProcess.Exit {
        var status: CInt = 0
        while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
        // Same as the C macros WTERMSIG and WEXITSTATUS, which Swift does not import.
        let signal = status & 0x7F
        return signal == 0 ? .code((status >> 8) & 0xFF) : .signal(signal)
    }
}

/// Information about processes from `/proc`.
package enum ProcessTable {
    /// Whether a signal has stopped the process.
    static func isStopped(_ identifier: pid_t) -> Bool {
        Self.status("/proc/\(identifier)")?.state == "T"
    }

    /// Whether all threads of a process wait, so that none is about to write.
    package static func isAsleep(_ identifier: pid_t) -> Bool {
        let folder = "/proc/\(identifier)/task"
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return threads.allSatisfy { Self.status("\(folder)/\($0)")?.state == "S" }
    }

    /// Returns the running children of `parent`.
    package static func children(of parent: pid_t) -> [pid_t] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return names.compactMap { pid_t($0) }.filter { identifier in
            // Zombies (state Z) stay in the table until their parent reaps them.
            Self.status("/proc/\(identifier)").map { $0.parent == parent && $0.state != "Z" } ?? false
        }
    }

    /// The memory of a process.
    package struct Memory: Sendable {
        /// The resident memory in bytes, its part that no other process shares, and its peak.
        package let resident: Int
        package let anonymous: Int
        package let peak: Int
    }

    /// The memory of a process; nil if it has ended.
    package static func memory(of identifier: Int32) -> Memory? {
        guard let data = FileManager.default.contents(atPath: "/proc/\(identifier)/status") else { return nil }
        let lines = String(decoding: data, as: UTF8.self).split(separator: "\n")
        func kilobytes(_ name: String) -> Int? {
            let line = lines.first { $0.hasPrefix("\(name):") }
            return line?.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) }
        }
        // A zombie, which has ended, has no memory.
        guard let resident = kilobytes("VmRSS"), let anonymous = kilobytes("RssAnon"), let peak = kilobytes("VmHWM")
        else { return nil }
        return Memory(resident: resident * 1_024, anonymous: anonymous * 1_024, peak: peak * 1_024)
    }

    /// Returns the state and the parent of a process or thread.
    private static func status(_ folder: String) -> (state: Substring, parent: pid_t)? {
        guard let data = FileManager.default.contents(atPath: "\(folder)/stat") else { return nil }
        // The name in brackets may contain anything; state and parent id follow the last bracket.
        let text = String(decoding: data, as: UTF8.self)
        guard let fields = text.split(separator: ")").last?.split(separator: " "), fields.count > 1 else { return nil }
        return pid_t(fields[1]).map { (fields[0], $0) }
    }
}
