// Carillon · ZoneFacts.swift
// SPDX-License-Identifier: Apache-2.0

/// The machine's time-zone data.
package struct ZoneFacts: Sendable, Equatable {
    /// Such as `2025b`, or a hash where the data do not name their version.
    package var version: String
    /// Names that any machine with these data knows, and this one does not.
    package var missing: [String]
    /// With which version waiting moments were computed; nil if none were, or nobody could be asked.
    package var stored: String?
    /// The year that it is.
    package var year: Int

    package init(version: String, missing: [String], stored: String?, year: Int) {
        self.version = version
        self.missing = missing
        self.stored = stored
        self.year = year
    }

    /// What is to be said about them.
    package var finding: Finding {
        let check = "time zones"
        guard self.missing.isEmpty else {
            return Finding(
                .fail, check, "there are no rules of \(self.missing.joined(separator: ", "))",
                mend: "install the package tzdata, or let TZDIR name the folder of the zones")
        }
        if let stored, stored != self.version {
            return Finding(
                .warn, check, "\(self.version); what is due later was computed with \(stored)",
                mend: "give all machines the same tzdata; dispatchers compute it anew within a minute")
        }
        if let year = Int(self.version.prefix(4)), self.year - year >= 2 {
            return Finding(
                .warn, check, "\(self.version) is old: rules have changed since", mend: "update the package tzdata")
        }
        return Finding(.ok, check, self.version)
    }
}
