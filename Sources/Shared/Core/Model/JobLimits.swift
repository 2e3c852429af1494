// Carillon · JobLimits.swift
// SPDX-License-Identifier: Apache-2.0

/// The bounds of a job's fields.
///
/// Lengths of text count Unicode scalars, those of JSON count bytes.
package enum JobLimits {
    /// How many fields there may be; more than there are names.
    package static let fields = 64
    package static let user = 128
    package static let users = 1_000
    package static let id = 128
    package static let org = 128
    package static let name = 128
    package static let title = 255
    package static let body = 4_096
    package static let url = 2_048
    package static let badge = 99_999
    package static let json = 16_384
    package static let usersJSON = 1_048_576
}
