// Carillon · Commands.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// Programs of this machine that some tests need.
enum Commands {
    /// The path of a program in `PATH`, or nil.
    static func find(_ name: String) -> String? {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        return folders.map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    /// Whether all programs are installed; reports each missing one on standard error, so no test
    /// is skipped silently.
    static func have(_ names: String...) -> Bool {
        let missing = names.filter { self.find($0) == nil }
        for name in missing {
            let hint = "SKIPPED: \(name) is not installed; tests that need it are skipped\n"
            FileHandle.standardError.write(Data(hint.utf8))
        }
        return missing.isEmpty
    }
}
