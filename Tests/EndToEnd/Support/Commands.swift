// Carillon · Commands.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// Programs of the machine that some tests need.
enum Commands {
    /// Where a program is, if it is in PATH.
    static func find(_ name: String) -> String? {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        return folders.map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    /// Whether all of them are there.
    ///
    /// Says on the error output if not, so that tests which are skipped for it are not skipped in silence.
    static func have(_ names: String...) -> Bool {
        let missing = names.filter { self.find($0) == nil }
        for name in missing {
            let hint = "SKIPPED: there is no \(name) here; tests that need it are skipped\n"
            FileHandle.standardError.write(Data(hint.utf8))
        }
        return missing.isEmpty
    }
}
