// Carillon · ExitStatus.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

/// What commands exit with, by the names of sysexits.h; `docs/command-line.md` lists them.
package enum ExitStatus {
    /// The command was understood, and its answer is no.
    package static let no = ExitCode.failure
    /// EX_USAGE: options that do not go together, or cannot be read.
    package static let usage = ExitCode(64)
    /// EX_DATAERR: what it was given to read is faulty.
    package static let data = ExitCode(65)
    /// EX_NOINPUT: a file that it was given cannot be opened.
    package static let noInput = ExitCode(66)
    /// EX_UNAVAILABLE: Redis, PostgreSQL or a dispatcher is out of reach.
    package static let unavailable = ExitCode(69)
    /// EX_TEMPFAIL: somebody has to say yes first.
    package static let wait = ExitCode(75)
    /// EX_CONFIG: the configuration is faulty.
    package static let configuration = ExitCode(78)
}

/// An end that says why, in a line on standard error.
package struct CommandFailure: Error, CustomStringConvertible {
    package let status: ExitCode
    package let description: String

    package init(_ status: ExitCode, _ description: String) {
        self.status = status
        self.description = description
    }
}
