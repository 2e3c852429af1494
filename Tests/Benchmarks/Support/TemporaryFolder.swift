// Carillon · TemporaryFolder.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A folder that goes with the object.
final class TemporaryFolder: Sendable {
    let path: String

    init() throws {
        let base = FileManager.default.temporaryDirectory
        let url = base.appendingPathComponent("carillon-bench-\(UUID().uuidString.lowercased())")
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
        self.path = url.path
    }

    deinit {
        try? FileManager.default.removeItem(atPath: self.path)
    }
}
