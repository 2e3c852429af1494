// Carillon · AppSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Yams

/// One app: the settings of its providers, and the shape of its push data.
package struct AppSettings: Sendable, Equatable {
    /// The app that is configured by variables.
    package static let defaultName = "default"

    /// The shape of an app's push data: Carillon's own, or keys from a file.
    package enum Shape: Sendable, Equatable {
        case standard
        /// The path of a ``ShapeFile``.
        case file(String)
        case members([Member])

        fileprivate init(_ text: String) {
            self = text == "standard" ? .standard : .file(text)
        }
    }

    /// A key of the push data, and the sources of its value in order of precedence.
    package struct Member: Sendable, Equatable {
        package let key: String
        package let sources: [String]
    }

    package let name: String
    /// Settings by provider, then by name.
    package var providers: [String: [String: String]] = [:]
    package var shape = Shape.standard
    /// The most active devices of a user with this app; nil for the general limit.
    var devices: Int?

    /// The variables of one provider of the default app.
    private struct Variables {
        let provider: String
        /// The setting that enables the provider.
        let enabler: String
        /// Further required settings; each entry lists alternatives.
        var required: [[String]] = []
        /// The variable of each setting.
        let names: KeyValuePairs<String, String>

        func name(of setting: String) -> String? { self.names.first { $0.key == setting }?.value }
    }

    private static let variables = [
        Variables(
            provider: "fcm", enabler: "credentials",
            names: [
                "credentials": "FCM_CREDENTIALS", "endpoint": "FCM_ENDPOINT", "channel": "FCM_CHANNEL",
                "click_action": "FCM_CLICK_ACTION", "rate": "FCM_RATE",
            ]),
        Variables(
            provider: "apns", enabler: "key", required: [["key_id"], ["team_id"], ["topic"]],
            names: [
                "key": "APNS_KEY", "key_id": "APNS_KEY_ID", "team_id": "APNS_TEAM_ID", "topic": "APNS_TOPIC",
                "endpoint": "APNS_ENDPOINT", "rate": "APNS_RATE",
            ]),
        Variables(
            provider: "webpush", enabler: "key", required: [["subject"]],
            names: [
                "key": "VAPID_KEY", "subject": "VAPID_SUBJECT", "origins": "WEBPUSH_ORIGINS", "rate": "WEBPUSH_RATE",
            ]),
        Variables(
            provider: "email", enabler: "url", required: [["from"]],
            names: [
                "url": "SMTP_URL", "password_file": "SMTP_PASSWORD_FILE", "from": "SMTP_FROM", "rate": "SMTP_RATE",
            ]),
        Variables(
            provider: "webhook", enabler: "url", required: [["secret", "secret_file"]],
            names: [
                "url": "WEBHOOK_PROVIDER_URL", "secret": "WEBHOOK_PROVIDER_SECRET",
                "secret_file": "WEBHOOK_PROVIDER_SECRET_FILE", "rate": "WEBHOOK_PROVIDER_RATE",
            ]),
    ]

    /// Returns the app that variables configure; it has no providers if no variable enables one.
    static func fromVariables(_ reader: SettingsReader) -> AppSettings {
        var app = AppSettings(name: self.defaultName)
        for variables in self.variables {
            var settings: [String: String] = [:]
            for (setting, name) in variables.names { settings[setting] = reader.text(name) }
            // An endpoint alone does not enable a provider.
            guard settings[variables.enabler] != nil else { continue }
            app.providers[variables.provider] = settings
            for alternatives in variables.required where alternatives.allSatisfy({ settings[$0] == nil }) {
                reader.fault(
                    alternatives.compactMap { variables.name(of: $0) }.joined(separator: " or "),
                    "is required with \(variables.name(of: variables.enabler) ?? variables.provider)")
            }
        }
        if let shape = reader.text("PUSH_SHAPE") { app.shape = Shape(shape) }
        return app
    }

    /// Returns the app, with the push services of `WEBPUSH_ORIGINS` if it lists none itself.
    ///
    /// - Parameter origins: the text of `WEBPUSH_ORIGINS`; nil for any.
    package func completed(origins: String?) -> AppSettings {
        var app = self
        if let origins, self.providers["webpush"]?["origins"] == nil {
            app.providers["webpush"]?["origins"] = origins
        }
        return app
    }

    /// Returns the push services that the app's subscriptions may use; nil if it lists none.
    ///
    /// - Throws: `FieldFault`.
    func webPushOrigins() throws(FieldFault) -> WebPushOrigins? {
        guard let text = self.providers["webpush"]?["origins"] else { return nil }
        return try WebPushOrigins(text)
    }

    /// Returns the name of a setting as the operator wrote it.
    package func settingName(of provider: String, _ setting: String?) -> String {
        let variables = Self.variables.first { $0.provider == provider }
        let variable = setting.flatMap { variables?.name(of: $0) }
        if self.name == Self.defaultName, let variable { return variable }
        if self.name == Self.defaultName, setting == "shape" { return "PUSH_SHAPE" }
        return "APPS: app \(self.name): \(setting == "shape" ? "" : provider + ".")\(setting ?? "")"
    }
}

/// The faults of a file of apps, each with its line.
package struct AppsFaults: Error, Sendable, CustomStringConvertible {
    package let faults: [String]

    package var description: String { self.faults.joined(separator: "; ") }
}

/// The YAML file of further apps: `apps:` with one entry per app.
package enum AppsFile {
    private static let longestName = 64

    /// Loads a file.
    ///
    /// - Throws: ``AppsFaults``.
    package static func load(path: String) throws(AppsFaults) -> [AppSettings] {
        guard let bytes = FileManager.default.contents(atPath: path),
            let text = String(validating: bytes, as: UTF8.self)
        else { throw AppsFaults(faults: ["the file cannot be read as UTF-8 text"]) }
        return try self.parse(text)
    }

    /// Parses a file's text.
    ///
    /// - Throws: ``AppsFaults``, which never shows values, because they may be secrets.
    static func parse(_ text: String) throws(AppsFaults) -> [AppSettings] {
        let root = try self.root(text)
        var faults: [String] = []
        var apps: [AppSettings] = []
        for (key, value) in root?.mapping.map({ Array($0) }) ?? [] {
            guard key.string == "apps", let entries = value.mapping else {
                faults.append(self.fault(key, "expected `apps:` with an entry for each app"))
                continue
            }
            for (name, settings) in entries {
                if let app = self.app(name, settings, &faults) { apps.append(app) }
            }
        }
        if root?.mapping == nil { faults.append("expected `apps:` with an entry for each app") }
        guard faults.isEmpty else { throw AppsFaults(faults: faults) }
        return apps
    }

    fileprivate static func root(_ text: String) throws(AppsFaults) -> Node? {
        do {
            return try Yams.compose(yaml: text)
        } catch {
            throw AppsFaults(faults: ["not valid YAML"])
        }
    }

    private static func app(_ key: Node, _ node: Node, _ faults: inout [String]) -> AppSettings? {
        guard let name = key.plainText, (1...self.longestName).contains(name.unicodeScalars.count) else {
            faults.append(self.fault(key, "an app's name has 1 to \(self.longestName) characters"))
            return nil
        }
        guard let entries = node.mapping else {
            faults.append(self.fault(node, "app \(name): expected providers and a shape"))
            return nil
        }
        var app = AppSettings(name: name)
        for (entry, value) in entries {
            let provider = entry.string ?? "?"
            if provider == "shape" {
                app.shape = self.shape(value, "app \(name): shape", &faults) ?? app.shape
                continue
            }
            if provider == "devices" {
                app.devices = value.wholeNumber.flatMap { DeviceLimits.allowed.contains($0) ? $0 : nil }
                if app.devices == nil {
                    let (least, most) = (DeviceLimits.allowed.lowerBound, DeviceLimits.allowed.upperBound)
                    faults.append(
                        self.fault(value, "app \(name): devices must be a whole number from \(least) to \(most)"))
                }
                continue
            }
            guard let settings = value.mapping else {
                faults.append(self.fault(value, "app \(name): \(provider): expected settings"))
                continue
            }
            for (setting, text) in settings {
                guard let text = text.plainText, !text.isEmpty else {
                    faults.append(self.fault(setting, "app \(name): \(provider).\(setting.string ?? "?") must be text"))
                    continue
                }
                app.providers[provider, default: [:]][setting.string ?? "?"] = text
            }
        }
        return app
    }

    private static func shape(_ node: Node, _ owner: String, _ faults: inout [String]) -> AppSettings.Shape? {
        if let text = node.plainText, !text.isEmpty { return AppSettings.Shape(text) }
        guard let entries = node.mapping else {
            faults.append(self.fault(node, "\(owner) must be `standard`, a path, or keys and their sources"))
            return nil
        }
        return .members(self.members(entries, "\(owner): ", &faults))
    }

    fileprivate static func members(
        _ entries: Node.Mapping,
        _ owner: String,
        _ faults: inout [String]
    ) -> [AppSettings.Member] {
        var members: [AppSettings.Member] = []
        for (key, value) in entries {
            let nodes = value.sequence.map { Array($0) } ?? [value]
            let sources = nodes.compactMap(\.plainText).filter { !$0.isEmpty }
            guard let name = key.plainText, !name.isEmpty, !sources.isEmpty, sources.count == nodes.count else {
                let reason =
                    "\(owner)\(key.string ?? "?"): expected a source or a list of them, such as [data.id, entity_id]"
                faults.append(self.fault(key, reason))
                continue
            }
            members.append(AppSettings.Member(key: name, sources: sources))
        }
        return members
    }

    fileprivate static func fault(_ node: Node, _ reason: String) -> String {
        node.mark.map { "line \($0.line): \(reason)" } ?? reason
    }
}

/// The YAML file of a shape: keys, each with a source or a list of sources.
package enum ShapeFile {
    /// Parses a file's text.
    ///
    /// - Throws: ``AppsFaults``.
    package static func parse(_ text: String) throws(AppsFaults) -> [AppSettings.Member] {
        guard let entries = try AppsFile.root(text)?.mapping else {
            throw AppsFaults(faults: ["expected keys and their sources, such as `id: notification_id`"])
        }
        var faults: [String] = []
        let members = AppsFile.members(entries, "", &faults)
        guard faults.isEmpty else { throw AppsFaults(faults: faults) }
        return members
    }
}
