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
        let key = try APNSKeyFacts(file: "\(folder)/apns.json")
        return ScratchSandbox(
            program: program,
            control: try SandboxControl(url: urls[2], authority: authority),
            settings: [
                "FCM_CREDENTIALS": "\(folder)/service-account.json", "FCM_ENDPOINT": urls[1], "PROVIDER_CA": authority,
                "APNS_KEY": "\(folder)/apns.p8", "APNS_KEY_ID": key.id, "APNS_TEAM_ID": key.team,
                "APNS_ENDPOINT": urls[1],
            ]
        )
    }
}

/// What the sandbox says of its APNs key.
private struct APNSKeyFacts {
    let id: String
    let team: String

    init(file: String) throws {
        let facts = try JSONSerialization.jsonObject(with: try Data(contentsOf: URL(filePath: file))) as? [String: Any]
        guard let facts, let id = facts["key_id"] as? String, let team = facts["team_id"] as? String else {
            throw ValidationError("the sandbox tells no key of APNs")
        }
        (self.id, self.team) = (id, team)
    }
}
