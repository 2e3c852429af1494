// Carillon · CronFault.swift
// SPDX-License-Identifier: Apache-2.0

/// What is wrong with a cron expression: which field, and what to do about it.
package struct CronFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let field: String
    package let reason: String

    init(_ field: String, _ reason: String) {
        self.field = field
        self.reason = reason
    }

    package var description: String { "\(self.field) \(self.reason)" }
}
