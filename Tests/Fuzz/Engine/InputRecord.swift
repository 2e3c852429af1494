// Carillon · InputRecord.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The file of the input that is under way.
struct InputRecord {
    let path: String
    private let handle: FileHandle

    /// - Throws: if the temporary folder cannot be written.
    init(target: String) throws {
        let folder = ProcessInfo.processInfo.environment["TMPDIR"] ?? "/tmp"
        self.path = "\(folder)/carillon-fuzz-\(target).input"
        guard FileManager.default.createFile(atPath: self.path, contents: nil),
            let handle = FileHandle(forWritingAtPath: self.path)
        else { throw CocoaError(.fileWriteUnknown) }
        self.handle = handle
    }

    func write(_ input: [UInt8]) {
        // What cannot be recorded would only be missing after a crash.
        try? self.handle.truncate(atOffset: 0)
        try? self.handle.seek(toOffset: 0)
        try? self.handle.write(contentsOf: Data(input))
    }

    func remove() {
        try? FileManager.default.removeItem(atPath: self.path)
    }
}
