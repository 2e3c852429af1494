// Carillon · AppsFile.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Yams

/// What is wrong with a file of apps: every fault, with its line.
package struct AppsFaults: Error, Sendable, CustomStringConvertible {
    package let faults: [String]

    package var description: String { self.faults.joined(separator: "; ") }
}

/// The file that names further apps, in YAML: `apps:` with an entry an app.
package enum AppsFile {
    private static let longestName = 64

    /// Reads a file.
    ///
    /// - Throws: ``AppsFaults``.
    package static func load(path: String) throws(AppsFaults) -> [AppSettings] {
        guard let bytes = FileManager.default.contents(atPath: path),
            let text = String(validating: bytes, as: UTF8.self)
        else { throw AppsFaults(faults: ["the file cannot be read as UTF-8 text"]) }
        return try self.parse(text)
    }

    /// Reads a file's text.
    ///
    /// - Throws: ``AppsFaults``; values are never shown, as they may be secrets.
    package static func parse(_ text: String) throws(AppsFaults) -> [AppSettings] {
        let root: Node?
        do {
            root = try Yams.compose(yaml: text)
        } catch {
            throw AppsFaults(faults: ["is no YAML"])
        }
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

    private static func app(_ key: Node, _ node: Node, _ faults: inout [String]) -> AppSettings? {
        guard let name = key.string, (1...self.longestName).contains(name.unicodeScalars.count) else {
            faults.append(self.fault(key, "an app's name has 1 to \(self.longestName) characters"))
            return nil
        }
        guard let entries = node.mapping else {
            faults.append(self.fault(node, "app \(name): expected its providers and its shape"))
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
                app.devices = value.int.flatMap { DeviceLimits.allowed.contains($0) ? $0 : nil }
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
                guard let text = text.string, !text.isEmpty else {
                    faults.append(self.fault(setting, "app \(name): \(provider).\(setting.string ?? "?") must be text"))
                    continue
                }
                app.providers[provider, default: [:]][setting.string ?? "?"] = text
            }
        }
        return app
    }

    private static func shape(_ node: Node, _ place: String, _ faults: inout [String]) -> AppSettings.Shape? {
        if let name = node.string { return .named(name) }
        guard let entries = node.mapping else {
            faults.append(self.fault(node, "\(place) must be a name, or keys and their sources"))
            return nil
        }
        var members: [AppSettings.Member] = []
        for (key, value) in entries {
            guard let key = key.string, !key.isEmpty, let source = value.string else {
                faults.append(self.fault(value, "\(place): a key's source must be text"))
                continue
            }
            members.append(AppSettings.Member(key: key, source: source))
        }
        return .members(members)
    }

    private static func fault(_ node: Node, _ reason: String) -> String {
        node.mark.map { "line \($0.line): \(reason)" } ?? reason
    }
}
