// Carillon · UserFields+Preferences.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Reads what bodies say about a user's preferences.
extension UserFields {
    /// Reads a list of `{"type":…,"in_app":…,"push":…,"email":…,"quiet_hours":…}`.
    func preferences(_ name: String, _ body: inout JSONBody) -> [String: TypePreference] {
        self.read(name, &body, named: "type", others: ["quiet_hours"]) { part, typeName in
            if let type = self.catalog[typeName] {
                if type.isRequired { part.fault("type", "is required and cannot be switched off") }
            } else {
                part.fault("type", "is not in the catalog")
            }
            return typeName
        }
    }

    /// Reads a list of `{"category":…,"in_app":…,"push":…,"email":…}`: what holds for a category's types unless the type's
    /// own preference says otherwise.
    func categoryPreferences(_ name: String, _ body: inout JSONBody) -> [String: TypePreference] {
        self.read(name, &body, named: "category", others: []) { part, category in
            if !self.catalog.categories.contains(where: { $0.category == category }) {
                part.fault("category", "is not in the catalog")
            }
            return PreferenceKey.category(category)
        }
    }

    private func read(
        _ name: String,
        _ body: inout JSONBody,
        named: String,
        others: Set<String>,
        key: (inout JSONBody, String) -> String
    ) -> [String: TypePreference] {
        var preferences: [String: TypePreference] = [:]
        let entries = body.elements(name, limit: Self.mostPreferences)
        for (index, entry) in entries.enumerated() {
            var part = JSONBody(entry, at: "\(name)[\(index)]")
            part.allow(others.union([named, "in_app", "push", "email"]))
            var preference = TypePreference(
                inApp: part.flag("in_app"),
                push: part.flag("push"),
                email: part.flag("email")
            )
            preference.quietHours = Self.quietOverride(&part)
            if entry.object != nil, let text = part.text(named, limit: JobLimits.name, isRequired: true) {
                let key = key(&part, text)
                if preferences.updateValue(preference, forKey: key) != nil { part.fault(named, "occurs twice") }
            }
            for fault in part.faults { body.fault(fault.field, fault.reason) }
        }
        return preferences
    }

    /// A type's own quiet hours: an object as in the settings, `"none"`, or null for the user's; nil if nothing is said.
    private static func quietOverride(_ body: inout JSONBody) -> QuietOverride? {
        switch body.value["quiet_hours"] {
        case nil: return nil
        case .null: return .inherited
        case .string("none"): return QuietOverride.none
        case let value?:
            guard value.object != nil else {
                body.fault("quiet_hours", "must be an object with start and end, \"none\" or null")
                return nil
            }
            var part = JSONBody(value, at: "quiet_hours")
            let hours = self.quietHours(&part)
            for fault in part.faults { body.fault(fault.field, fault.reason) }
            return hours.map { .hours($0) } ?? QuietOverride.none
        }
    }
}
