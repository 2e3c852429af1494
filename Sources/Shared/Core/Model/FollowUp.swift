// Carillon · FollowUp.swift
// SPDX-License-Identifier: Apache-2.0

/// What is put off for a notification, to be looked at again when its time has come.
package enum FollowUp: String, Sendable, CaseIterable {
    /// Quiet hours end: push what they held back.
    case release
    /// An idle user has had the time to read it: push.
    case attention
    /// It has been unread for long: e-mail.
    case email
}
