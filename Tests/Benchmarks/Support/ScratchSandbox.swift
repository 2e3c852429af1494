// Carillon · ScratchSandbox.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// A provider sandbox of a benchmark's own.
struct ScratchSandbox {
    let program: ChildProgram
    let control: SandboxControl
    /// What has a dispatcher send to it.
    let settings: [String: String]
}

extension ScratchStack {
    /// Starts a sandbox that keeps nothing and answers tokens with the word `slow` late.
    func sandbox(slow milliseconds: Int, threads: Int = 1) async throws -> ScratchSandbox {
        let folder = "\(self.folder)/sandbox"
        let program = try await ChildProgram(
            self.sandboxPath,
            [
                "--directory", folder, "--no-record", "--slow-milliseconds", "\(milliseconds)", "--threads",
                "\(threads)",
            ],
            logFile: "\(self.folder)/sandbox.log"
        )
        let urls = try await program.line("ready ").split(separator: " ").map(String.init)
        guard urls.count >= 3 else { throw ValidationError("the sandbox told no addresses") }
        let authority = "\(folder)/ca.pem"
        return ScratchSandbox(
            program: program,
            control: try SandboxControl(url: urls[2], authority: authority),
            settings: [
                "FCM_CREDENTIALS": "\(folder)/service-account.json", "FCM_ENDPOINT": urls[1], "PROVIDER_CA": authority,
            ]
        )
    }
}
