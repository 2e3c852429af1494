// Carillon · AppSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// One app: its providers' settings, and which data its clients read.
package struct AppSettings: Sendable, Equatable {
    /// The app that the variables make.
    package static let defaultName = "default"

    package enum Shape: Sendable, Equatable {
        case named(String)
        /// Keys and where their values come from.
        case members([Member])
    }

    package struct Member: Sendable, Equatable {
        package let key: String
        package let source: String
    }

    package let name: String
    /// By provider, then by setting.
    package var providers: [String: [String: String]] = [:]
    package var shape = Shape.named("standard")
    /// How many active devices a user may have with it; nil for what holds for all apps.
    package var devices: Int?

    package init(name: String) {
        self.name = name
    }

    /// The variables of the default app, by provider and setting.
    private static let variables: [(provider: String, setting: String, variable: String)] = [
        ("fcm", "credentials", "FCM_CREDENTIALS"), ("fcm", "endpoint", "FCM_ENDPOINT"),
        ("fcm", "channel", "FCM_CHANNEL"), ("fcm", "click_action", "FCM_CLICK_ACTION"), ("fcm", "rate", "FCM_RATE"),
        ("apns", "key", "APNS_KEY"), ("apns", "key_id", "APNS_KEY_ID"), ("apns", "team_id", "APNS_TEAM_ID"),
        ("apns", "topic", "APNS_TOPIC"), ("apns", "endpoint", "APNS_ENDPOINT"), ("apns", "rate", "APNS_RATE"),
        ("webpush", "key", "VAPID_KEY"), ("webpush", "subject", "VAPID_SUBJECT"),
        ("webpush", "origins", "WEBPUSH_ORIGINS"), ("webpush", "rate", "WEBPUSH_RATE"),
        ("email", "url", "SMTP_URL"), ("email", "password_file", "SMTP_PASSWORD_FILE"),
        ("email", "from", "SMTP_FROM"), ("email", "rate", "SMTP_RATE"),
        ("webhook", "url", "WEBHOOK_PROVIDER_URL"), ("webhook", "secret", "WEBHOOK_PROVIDER_SECRET"),
        ("webhook", "secret_file", "WEBHOOK_PROVIDER_SECRET_FILE"), ("webhook", "rate", "WEBHOOK_PROVIDER_RATE"),
    ]

    /// What a provider cannot do without once it is on; of several names in one entry one is enough.
    private static let needed = [
        ("apns", "APNS_KEY", [["APNS_KEY_ID"], ["APNS_TEAM_ID"], ["APNS_TOPIC"]]),
        ("webpush", "VAPID_KEY", [["VAPID_SUBJECT"]]), ("email", "SMTP_URL", [["SMTP_FROM"]]),
        ("webhook", "WEBHOOK_PROVIDER_URL", [["WEBHOOK_PROVIDER_SECRET", "WEBHOOK_PROVIDER_SECRET_FILE"]]),
    ]

    /// The setting that switches a provider on.
    private static let switches = [
        "fcm": "credentials", "apns": "key", "webpush": "key", "email": "url", "webhook": "url",
    ]

    /// The app that the variables make; without providers if none is set.
    static func fromVariables(_ reader: SettingsReader) -> AppSettings {
        var app = AppSettings(name: self.defaultName)
        for (provider, setting, variable) in self.variables {
            guard let text = reader.text(variable) else { continue }
            app.providers[provider, default: [:]][setting] = text
        }
        // An endpoint alone switches nothing on.
        app.providers = app.providers.filter { provider, settings in
            self.switches[provider].map { settings[$0] != nil } ?? true
        }
        for (provider, variable, needed) in self.needed where app.providers[provider] != nil {
            for names in needed where names.allSatisfy({ reader.text($0) == nil }) {
                reader.fault(names.joined(separator: " or "), "is required with \(variable)")
            }
        }
        if let shape = reader.text("PUSH_SHAPE") { app.shape = .named(shape) }
        return app
    }

    /// The same with what the variables say for every app that says nothing: the push services that are on the list.
    ///
    /// - Parameter origins: the text of `WEBPUSH_ORIGINS`; nil for any.
    package func completed(origins: String?) -> AppSettings {
        var app = self
        if let origins, self.providers["webpush"]?["origins"] == nil {
            app.providers["webpush"]?["origins"] = origins
        }
        return app
    }

    /// The push services that subscriptions of the app may name; nil if it says nothing.
    ///
    /// - Throws: `WebPushOrigins.Fault`.
    package func webPushOrigins() throws(WebPushOrigins.Fault) -> WebPushOrigins? {
        guard let text = self.providers["webpush"]?["origins"] else { return nil }
        return try WebPushOrigins(text)
    }

    /// How a setting is called where it was given.
    package func place(_ provider: String, _ setting: String?) -> String {
        let variable = Self.variables.first { $0.provider == provider && $0.setting == setting }?.variable
        if self.name == Self.defaultName, let variable { return variable }
        if self.name == Self.defaultName, setting == "shape" { return "PUSH_SHAPE" }
        return "APPS: app \(self.name): \(setting == "shape" ? "" : provider + ".")\(setting ?? "")"
    }
}
