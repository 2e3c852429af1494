// Carillon · Spawn.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc

/// Starts programs by `posix_spawn`.
package enum Spawn {
    /// Starts `program`, found by PATH, in a process group of its own.
    ///
    /// - Parameters:
    ///   - environment: all of it.
    ///   - output: the file that gets the standard output.
    ///   - errors: the file that gets the standard error.
    /// - Returns: the process's id.
    package static func start(
        _ program: String,
        _ arguments: [String],
        environment: [String: String],
        output: String,
        errors: String
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        let append = O_WRONLY | O_CREAT | O_APPEND
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, append, 0o600)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, append, 0o600)
        // What another thread opens at this moment is not the program's: whoever waits for the end of such a file would
        // wait for this program, and the sockets of a load would count against what the program may have open.
        // Those that are not open are passed over.
        for file in STDERR_FILENO + 1...Self.highestFile() { posix_spawn_file_actions_addclose(&actions, file) }

        // The test runner's own signal settings are not the program's.
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

        // Copies that outlive the call, which reads them only while it runs.
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

    /// No file that is open, or will be within moments, has a higher number.
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
        // Other threads go on opening files meanwhile.
        return highest + 1_024
    }

    /// Blocks until the process has ended, and leaves it to be collected by ``collect(_:)``, so that its id stays taken.
    package static func wait(for identifier: pid_t) {
        var information = siginfo_t()
        while waitid(P_PID, id_t(identifier), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
    }

    /// Collects a process that has ended.
    package static func collect(_ identifier: pid_t) -> ChildProcess.Exit {
        var status: CInt = 0
        while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
        // The C macros WTERMSIG and WEXITSTATUS, which the importer leaves out.
        let signal = status & 0x7F
        return signal == 0 ? .code((status >> 8) & 0xFF) : .signal(signal)
    }
}
