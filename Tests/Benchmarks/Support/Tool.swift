// Carillon · Tool.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// A program that runs to its end, such as a yardstick.
enum Tool {
    /// Runs `program`, a path or a name that PATH finds, and gives what it prints.
    ///
    /// - Throws: `ValidationError` if it fails.
    static func run(
        _ program: String,
        _ arguments: [String],
        environment: [String: String] = [:],
        isQuiet: Bool = false
    ) throws -> String {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = [program] + arguments
        process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        let pipe = Pipe()
        process.standardOutput = pipe
        if isQuiet { process.standardError = FileHandle.nullDevice }
        try process.run()
        let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            throw ValidationError("\(program) failed with \(process.terminationStatus)")
        }
        return output
    }

    /// A member of the JSON line that a yardstick prints.
    static func figure(_ name: String, in output: String) throws -> Double {
        let line = try JSONSerialization.jsonObject(with: Data(output.utf8)) as? [String: Any]
        guard let value = line?[name] as? Double else { throw ValidationError("the yardstick told no \(name)") }
        return value
    }
}
