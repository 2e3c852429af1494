// Carillon · FileFacts.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc

/// Who may read a file that holds a secret.
package struct FileFacts: Sendable, Equatable {
    package let path: String
    /// The permission bits; nil if the file cannot be looked at.
    package let mode: UInt32?

    package init(path: String, mode: UInt32?) {
        self.path = path
        self.mode = mode
    }

    /// Looks at a file.
    package init(path: String) {
        var status = stat()
        self.init(path: path, mode: stat(path, &status) == 0 ? UInt32(status.st_mode) : nil)
    }

    /// What is to be said about it; nothing where it cannot be read, as whoever reads it says so.
    package var finding: Finding? {
        guard let mode else { return nil }
        let check = "secret files"
        guard mode & 0o004 == 0 else {
            return Finding(
                .warn, check, "\(self.path) can be read by everybody on this machine",
                mend: "chmod o= '\(self.path)', and let it belong to the user that runs the service")
        }
        return Finding(.ok, check, self.path)
    }
}
