// Carillon · Answer.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird

/// Answers that the systems have in common.
enum Answer {
    static let noContent = Response(status: .noContent)
    /// Unknown ids and other people's ids look the same.
    static let notFound = Problem(.notFound, "there is no such thing")
}
