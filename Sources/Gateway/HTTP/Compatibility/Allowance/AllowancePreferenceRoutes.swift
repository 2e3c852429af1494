// Carillon · AllowancePreferenceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// The family-finance app's `/api/v1/notifications/preferences`.
struct AllowancePreferenceRoutes {
    let services: APIServices
    private var types: CodedTypes { CodedTypes(self.services.catalog.all) }

    func add(to group: RouterGroup<APIContext>) {
        group.get("preferences", use: self.preferences)
        group.put("preferences", use: self.setPreferences)
        group.put("preferences/quiet-hours", use: self.setQuietHours)
    }

    private func preferences(_ request: Request, _ context: APIContext) async throws -> Response {
        try await self.answer(try context.user())
    }

    private func answer(_ user: String) async throws -> Response {
        let wishes = try await self.services.preferences.preferences(user: user)
        let settings = try await self.services.preferences.settings(user: user)
        return Response.object { AllowanceShape.write(self.types, wishes: wishes, settings: settings, to: &$0) }
    }

    private func setPreferences(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        let changed = AllowanceRequests.preferences(&fields, types: self.types)
        try fields.finish()
        try await self.services.changePreferences(user: user, changed)
        return try await self.answer(user)
    }

    private func setQuietHours(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        let change = AllowanceRequests.quietHours(&fields)
        if case .switched(on: true) = change {
            let stored = try await self.services.preferences.settings(user: user)
            if stored.quietHours == nil, stored.pausedQuietHours == nil {
                for name in ["startTime", "endTime"] { fields.fault(name, "is missing") }
            }
        }
        try fields.finish()
        switch change {
        case .times(let hours, let isOn):
            var settings = UserSettings()
            if isOn { settings.quietHours = hours } else { settings.pausedQuietHours = hours }
            // Its clients know no weekdays.
            try await self.services.preferences.set(
                user: user, settings: settings, keeping: [.general, .emailOptOut, .weekdays])
        case .switched(let isOn): try await self.services.preferences.switchQuietHours(user: user, isOn: isOn)
        case nil: break
        }
        return try await self.answer(user)
    }
}
