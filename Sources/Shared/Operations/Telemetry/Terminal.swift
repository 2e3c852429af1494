// Carillon · Terminal.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import Glibc

/// Plain output of commands, for people and scripts.
package enum Terminal {
    /// Prints a line on standard output at once, so that whoever waits for it sees it.
    package static func line(_ text: String) {
        FileDescriptorOutput(descriptor: STDOUT_FILENO).write(Data((text + "\n").utf8))
    }

    /// Prints text on standard output without a line's end.
    package static func text(_ text: String) {
        FileDescriptorOutput(descriptor: STDOUT_FILENO).write(Data(text.utf8))
    }

    /// Prints a line on standard error.
    package static func error(_ text: String) {
        FileDescriptorOutput.standardError.write(Data((text + "\n").utf8))
    }

    /// Writes text over the last line of standard error, for a terminal; empty text clears it.
    package static func progress(_ text: String) {
        FileDescriptorOutput.standardError.write(Data(("\r\u{1B}[K" + text).utf8))
    }
}
