// Carillon · DeviceSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The settings by which a gateway registers devices, browsers among them.
package struct DeviceSettings: Sendable {
    /// Path of the key's file that browsers subscribe with; nil if there is none.
    package let webPushKey: String?
    /// The push services that subscriptions may name of apps that have no list of their own.
    private let origins: WebPushOrigins
    /// How many active devices a user may have with each app that says nothing.
    private let perUser: Int
    /// A file of further apps, whose own rules count for them; nil if there is none.
    package let appsFile: String?

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        self.webPushKey = reader.text("VAPID_KEY")
        self.origins = reader.value("WEBPUSH_ORIGINS", default: .any) { try WebPushOrigins($0) }
        self.perUser = reader.integer("DEVICES_PER_USER", default: 20, in: DeviceLimits.allowed)
        self.appsFile = reader.text("APPS")
    }

    /// The rules of all apps; reads ``appsFile``.
    ///
    /// - Throws: ``AppsFaults``.
    package func rules() throws(AppsFaults) -> DeviceRules {
        var rules = DeviceRules(origins: self.origins, limits: DeviceLimits(standard: self.perUser))
        guard let appsFile else { return rules }
        let apps = try AppsFile.load(path: appsFile)
        var faults: [String] = []
        for app in apps {
            do throws(WebPushOrigins.Fault) {
                rules.appOrigins[app.name] = try app.webPushOrigins()
            } catch {
                faults.append("app \(app.name): webpush.origins \(error)")
            }
        }
        guard faults.isEmpty else { throw AppsFaults(faults: faults) }
        let limits = apps.compactMap { app in app.devices.map { (app.name, $0) } }
        rules.limits = DeviceLimits(standard: self.perUser, ofApps: Dictionary(limits) { $1 })
        return rules
    }
}

/// The rules for the devices of each app.
package struct DeviceRules: Sendable {
    /// The push services that subscriptions may name of apps that have no list of their own.
    package let origins: WebPushOrigins
    /// Those of apps that have one.
    package internal(set) var appOrigins: [String: WebPushOrigins] = [:]
    package internal(set) var limits: DeviceLimits
}
