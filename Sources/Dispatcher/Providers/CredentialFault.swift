// Carillon · CredentialFault.swift
// SPDX-License-Identifier: Apache-2.0

/// What is wrong with a credential; never holds any of it.
package struct CredentialFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// The name of the setting at fault, such as `credentials`.
    package let setting: String?
    package let description: String

    package init(_ description: String, setting: String? = nil) {
        self.description = description
        self.setting = setting
    }

    /// The same about a setting, if it names none yet.
    func of(_ setting: String) -> CredentialFault {
        CredentialFault(self.description, setting: self.setting ?? setting)
    }
}

extension [String: String] {
    /// A setting that a provider cannot do without.
    func required(_ name: String) throws(CredentialFault) -> String {
        guard let text = self[name] else { throw CredentialFault("is missing", setting: name) }
        return text
    }
}
