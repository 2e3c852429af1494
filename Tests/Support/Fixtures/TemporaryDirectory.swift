// Carillon · TemporaryDirectory.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A directory of its own, removed with this object.
package final class TemporaryDirectory: Sendable {
    package let path: String

    /// Makes it under the system's temporary directory; others may pass through it but not list it.
    package init(_ label: String = "test") throws {
        let url = FileManager.default.temporaryDirectory
            .appendingPathComponent("carillon-\(label)-\(UUID().uuidString.prefix(8).lowercased())", isDirectory: true)
        try FileManager.default.createDirectory(
            at: url, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o711])
        self.path = url.path
    }

    deinit {
        self.remove()
    }

    /// Removes it now; does nothing if that was done before.
    package func remove() {
        try? FileManager.default.removeItem(atPath: self.path)
    }

    /// The path of `name` in it.
    package func file(_ name: String) -> String {
        self.path + "/" + name
    }
}
