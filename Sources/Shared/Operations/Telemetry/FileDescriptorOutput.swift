// Carillon · FileDescriptorOutput.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import Glibc

/// Writes whole lines to a descriptor.
struct FileDescriptorOutput: Sendable {
    static let standardError = FileDescriptorOutput(descriptor: STDERR_FILENO)

    let descriptor: CInt

    /// One call a line, so that lines of several threads do not mix; what the system refuses is lost, as logs may be.
    func write(_ bytes: Data) {
        bytes.withUnsafeBytes { _ = Glibc.write(self.descriptor, $0.baseAddress, $0.count) }
    }
}
