// Carillon · AllowanceRequests.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What the family-finance app's clients send about preferences, checked.
enum AllowanceRequests {
    /// A catalog has some dozens of types; a client sends each once.
    private static let mostPreferences = 1_000

    /// `UpdateNotificationPreferencesDto`: what is said of each type; the rest of the user's words stays.
    ///
    /// Clients send every type back, those that cannot be refused among them: they may come as they are.
    static func preferences(_ fields: inout RequestFields, types: CodedTypes) -> [String: TypePreference] {
        guard let items = fields.value["preferences"]?.array, items.count <= Self.mostPreferences else {
            fields.fault("preferences", "must be an array of at most \(Self.mostPreferences) objects")
            return [:]
        }
        var changed: [String: TypePreference] = [:]
        for (index, item) in items.enumerated() {
            var entry = RequestFields(item, at: "preferences[\(index)].")
            let code = entry.integer("notificationType", isRequired: true)
            let inApp = entry.flag("inAppEnabled")
            let push = entry.flag("pushEnabled")
            let email = entry.flag("emailEnabled")
            let type = code.flatMap { types[$0] }
            if code != nil, type == nil { entry.fault("notificationType", "is not in the catalog") }
            if let type, type.isRequired, inApp == false || push == false {
                entry.fault("notificationType", "is required and cannot be switched off")
            }
            if let type {
                var wish = changed[type.name] ?? TypePreference()
                if !type.isRequired {
                    wish.inApp = inApp ?? wish.inApp
                    wish.push = push ?? wish.push
                }
                wish.email = email ?? wish.email
                changed[type.name] = wish
            }
            fields.add(entry)
        }
        return changed
    }

    /// A client's quiet hours as it sends them.
    enum QuietChange: Equatable {
        /// Their times; nil for none, since start and end are the same.
        case times(QuietHours?, isOn: Bool)
        /// Whether they hold; their times stay.
        case switched(on: Bool)
    }

    /// `UpdateQuietHoursDto`: nil with a fault; on all days, as it names none.
    static func quietHours(_ fields: inout RequestFields) -> QuietChange? {
        let isOn = fields.flag("enabled")
        if isOn == nil, fields.faults.isEmpty { fields.fault("enabled", "is missing") }
        let start: Int? = fields.time("startTime") ?? nil
        let end: Int? = fields.time("endTime") ?? nil
        guard let isOn, fields.faults.isEmpty else { return nil }
        switch (start, end) {
        case (nil, nil): return .switched(on: isOn)
        case (let start?, let end?):
            return .times(start == end ? nil : QuietHours(start: start, end: end), isOn: isOn)
        case (nil, _): fields.fault("startTime", "is missing")
        case (_, nil): fields.fault("endTime", "is missing")
        }
        return nil
    }
}
