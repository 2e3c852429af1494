// Carillon · SandboxError.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a sandbox cannot start.
package struct SandboxError: Error, CustomStringConvertible {
    package enum Code: String, Sendable {
        /// `openssl` is not installed or failed.
        case openssl
        /// A file in the directory cannot be read, written or understood.
        case credentials
    }

    package let code: Code
    /// What went wrong; names files, never holds their contents.
    package let message: String
    /// Where it was noticed.
    package let place: String

    init(_ code: Code, _ message: String, file: String = #fileID, line: Int = #line) {
        self.code = code
        self.message = message
        self.place = "\(file):\(line)"
    }

    package var description: String { "provider sandbox: \(self.code), \(self.message), at \(self.place)" }
}
