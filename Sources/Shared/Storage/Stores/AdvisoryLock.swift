// Carillon · AdvisoryLock.swift
// SPDX-License-Identifier: Apache-2.0

/// The numbers of PostgreSQL's advisory locks that Carillon takes, so that no two things share one.
enum AdvisoryLock {
    /// Whoever takes follow-ups that are due.
    static let followUps = 0x4341_5249_0001
}
