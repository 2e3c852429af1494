// Carillon · OpenSSLTool.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// Runs the `openssl` program in a directory.
///
/// Blocks until it ends.
struct OpenSSLTool {
    let directory: URL

    func callAsFunction(_ arguments: [String]) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["openssl"] + arguments
        process.currentDirectoryURL = self.directory
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            throw SandboxError(.openssl, "openssl \(arguments.first ?? "") exited \(process.terminationStatus)")
        }
    }
}
