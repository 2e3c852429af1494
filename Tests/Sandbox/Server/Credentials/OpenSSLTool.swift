// Carillon · OpenSSLTool.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc

/// Runs the `openssl` program in a directory.
///
/// Blocks until it ends, by the kernel's own call: `Process` learns of an end from another thread of the pool that its
/// callers block, and when as many tests as there are threads begin at once, none of them goes on.
struct OpenSSLTool {
    let directory: URL

    func callAsFunction(_ arguments: [String]) throws {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] {
            posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
        }
        // Copies that outlive the call, which reads them only while it runs.
        var words: [UnsafeMutablePointer<CChar>?] = (["env", "-C", self.directory.path, "openssl"] + arguments)
            .map { strdup($0) }
        var variables: [UnsafeMutablePointer<CChar>?] = ProcessInfo.processInfo.environment.map {
            strdup("\($0.key)=\($0.value)")
        }
        defer { for word in words + variables { free(word) } }
        words.append(nil)
        variables.append(nil)
        var identifier = pid_t()
        guard posix_spawnp(&identifier, "env", &actions, nil, words, variables) == 0 else {
            throw SandboxError(.openssl, "openssl cannot be started")
        }
        var status: CInt = 0
        while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
        guard status == 0 else {
            throw SandboxError(.openssl, "openssl \(arguments.first ?? "") ended with status \(status)")
        }
    }
}
