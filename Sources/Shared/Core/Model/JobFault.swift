// Carillon · JobFault.swift
// SPDX-License-Identifier: Apache-2.0

/// One thing that is wrong with a job: which field, and what to do about it.
package struct JobFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let field: String
    package let reason: String

    package init(_ field: String, _ reason: String) {
        self.field = field
        self.reason = reason
    }

    package var description: String { "\(self.field): \(self.reason)" }
}

/// All that is wrong with a job.
package struct JobFaults: Error, Sendable, Equatable, CustomStringConvertible {
    package let faults: [JobFault]

    package init(_ faults: [JobFault]) {
        self.faults = faults
    }

    package var description: String { self.faults.map(\.description).joined(separator: "; ") }
}
