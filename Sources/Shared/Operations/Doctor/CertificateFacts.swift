// Carillon · CertificateFacts.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// When a certificate is good.
package struct CertificateFacts: Sendable, Equatable {
    private static let notice: Duration = .seconds(14 * 86_400)

    package let notBefore: Timestamp
    package let notAfter: Timestamp

    package init(notBefore: Timestamp, notAfter: Timestamp) {
        self.notBefore = notBefore
        self.notAfter = notAfter
    }

    /// What is to be said about it.
    package func finding(now: Timestamp) -> Finding {
        let check = "tls certificate"
        let remedy = "renew it, then send the gateway SIGHUP"
        if now < self.notBefore {
            return Finding(
                .fail, check, "good from \(self.notBefore.rfc3339) only", mend: "look at the machine's clock")
        }
        if now >= self.notAfter {
            return Finding(.fail, check, "expired at \(self.notAfter.rfc3339)", mend: remedy)
        }
        let found = "good until \(self.notAfter.rfc3339), and the key is its own"
        let outcome: Finding.Outcome = self.notAfter - now < Self.notice ? .warn : .ok
        return Finding(outcome, check, found, mend: outcome == .ok ? nil : remedy)
    }
}
