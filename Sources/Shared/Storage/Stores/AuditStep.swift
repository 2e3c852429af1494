// Carillon · AuditStep.swift
// SPDX-License-Identifier: Apache-2.0

/// What the audit says of a notification's way where no provider has a part in it: the outcomes of rows of kind ``kind``.
package enum AuditStep: String, Sendable, CaseIterable {
    /// Quiet hours hold its push back, by the reason, for as long as the row's duration says.
    case deferred
    /// No socket proved receipt in time.
    case unproven
    /// A summary, whose id stands in the place of a provider's, was pushed for it.
    case summarised

    package static let kind = "step"
    /// Where other rows name a provider.
    static let provider = "none"
}
