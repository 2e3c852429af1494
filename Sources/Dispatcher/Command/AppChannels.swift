// Carillon · AppChannels.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Logging
import Operations
import Pipeline
import Providers
import Synchronization

/// Makes the entries of the channel directory from the apps' settings, and renews them when their
/// files change.
final class AppChannels: Sendable {
    /// The input of an app's entry; the entry is kept while its input is unchanged.
    private struct Source: Equatable {
        let settings: [String: String]
        let shape: AppSettings.Shape
        /// The contents of the files that the settings name.
        let files: [String: [UInt8]]
    }

    private struct Key: Hashable {
        let provider: Provider
        let app: String
    }

    private let settings: DispatcherSettings
    private let context: ChannelContext
    private let sources = Mutex<[Key: Source]>([:])

    init(_ settings: DispatcherSettings, context: ChannelContext) {
        self.settings = settings
        self.context = context
    }

    /// Returns the entries at start.
    ///
    /// - Parameter fault: receives each fault with the setting's name.
    func make(fault: (_ name: String, _ reason: String) -> Void) async -> [ChannelDirectory.Entry] {
        var entries: [ChannelDirectory.Entry] = []
        for app in self.apps(fault: fault) {
            for (name, settings) in app.providers.sorted(by: { $0.key < $1.key }) {
                guard let kind = Self.kind(named: name) else { continue }
                do throws(CredentialFault) {
                    let source = self.source(kind, app, settings)
                    entries.append(try await self.entry(kind, app, settings))
                    self.sources.withLock { $0[Key(provider: kind.provider, app: app.name)] = source }
                } catch {
                    fault(app.settingName(of: name, error.setting), error.description)
                }
            }
        }
        return entries
    }

    /// The files of all apps' credentials.
    var files: [String] {
        let paths = self.apps { _, _ in }.flatMap { app in
            app.providers.flatMap { name, settings in
                (Self.kind(named: name)?.files ?? []).compactMap { settings[$0] }
            }
        }
        return Set(paths + [self.settings.appsFile].compactMap(\.self)).sorted()
    }

    /// Replaces the entries whose settings or files have changed; a faulty one never replaces a
    /// good one.
    func renew(_ directory: ChannelDirectory) async {
        var isFaulty = false
        let apps = self.apps { name, reason in
            isFaulty = true
            self.context.logger.error(
                "cannot read app settings; keeping the previous ones",
                metadata: ["setting": "\(name)", "error": "\(reason)"])
        }
        guard !isFaulty else { return }
        let conflicts = directory.rateConflicts
        var known: [Provider: Set<String>] = [:]
        for app in apps {
            for (name, settings) in app.providers {
                guard let kind = Self.kind(named: name) else { continue }
                let key = Key(provider: kind.provider, app: app.name)
                known[kind.provider, default: []].insert(app.name)
                let source = self.source(kind, app, settings)
                guard self.sources.withLock({ $0[key] != source }) else { continue }
                await self.renew(kind, app, settings, in: directory)
                self.sources.withLock { $0[key] = source }
            }
        }
        for (provider, app) in directory.retain(known) {
            self.sources.withLock { $0[Key(provider: provider, app: app)] = nil }
            self.context.logger.notice(
                "app removed; its deliveries end as no_provider",
                metadata: ["provider": "\(provider.rawValue)", "app": "\(app)"])
        }
        if directory.rateConflicts != conflicts { self.warnOfRates(directory) }
    }

    /// Replaces an app's entry, unless its new settings or files are faulty.
    private func renew(
        _ kind: any ProviderKind.Type,
        _ app: AppSettings,
        _ settings: [String: String],
        in directory: ChannelDirectory
    ) async {
        let name = kind.provider.rawValue
        let metadata: Logger.Metadata = ["provider": "\(name)", "app": "\(app.name)"]
        do throws(CredentialFault) {
            if directory.replace(with: try await self.entry(kind, app, settings)) {
                self.context.logger.notice("credentials reloaded", metadata: metadata)
            } else {
                self.context.logger.warning(
                    "restart the dispatcher to use a provider that no app had at start", metadata: metadata)
            }
        } catch {
            self.context.logger.error(
                "cannot use the new credentials; keeping the old ones",
                metadata: metadata.merging([
                    "setting": "\(app.settingName(of: name, error.setting))", "error": "\(error)",
                ]) { $1 }
            )
        }
    }

    /// Warns of apps that share an account and have different rates.
    func warnOfRates(_ directory: ChannelDirectory) {
        for conflict in directory.rateConflicts {
            let rates = conflict.rates.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
            self.context.logger.warning(
                "apps of one account have different rates; using the smallest",
                metadata: [
                    "provider": "\(conflict.provider.rawValue)", "account": "\(conflict.account)",
                    "rates": "\(rates.joined(separator: ", "))",
                ])
        }
    }

    private static var names: String { Provider.all.map(\.rawValue).joined(separator: ", ") }

    private static func kind(named name: String) -> (any ProviderKind.Type)? {
        Provider(rawValue: name).flatMap { ProviderKinds.kind(of: $0) }
    }

    private func apps(fault: (String, String) -> Void) -> [AppSettings] {
        var apps = [self.settings.defaultApp]
        guard let path = self.settings.appsFile else { return apps }
        do {
            for app in try AppsFile.load(path: path) {
                if app.name == AppSettings.defaultName, !self.settings.defaultApp.providers.isEmpty {
                    fault("APPS", "the app default comes from the variables; use another name")
                } else {
                    apps.removeAll { $0.name == app.name }
                    apps.append(app.completed(origins: self.settings.webPushOrigins))
                }
            }
        } catch {
            for reason in error.faults { fault("APPS", reason) }
        }
        for app in apps {
            for name in app.providers.keys.sorted() where Self.kind(named: name) == nil {
                fault(app.settingName(of: name, nil), "no such provider; one of \(Self.names)")
            }
        }
        return apps
    }

    private func entry(
        _ kind: any ProviderKind.Type,
        _ app: AppSettings,
        _ settings: [String: String]
    ) async throws(CredentialFault) -> ChannelDirectory.Entry {
        var settings = settings
        let rate = try settings.removeValue(forKey: "rate").map { (text) throws(CredentialFault) -> Int in
            guard let rate = Int(text), (1...1_000_000).contains(rate) else {
                throw CredentialFault("must be a whole number of messages a second, 1 to 1000000", setting: "rate")
            }
            return rate
        }
        if let unknown = settings.keys.sorted().first(where: { !kind.settings.contains($0) }) {
            throw CredentialFault(
                "is unknown; one of \((kind.settings + ["rate"]).joined(separator: ", "))", setting: unknown)
        }
        let shape = try self.shape(of: app)
        let channel = try await kind.channel(app: app.name, settings: settings, shape: shape, context: self.context)
        return ChannelDirectory.Entry(channel, messagesPerSecond: rate)
    }

    private func shape(of app: AppSettings) throws(CredentialFault) -> PushShape {
        let members: [AppSettings.Member]
        switch app.shape {
        case .standard: return .standard
        case .members(let own): members = own
        case .file(let path):
            guard let bytes = try? self.context.read(path), let text = String(validating: bytes, as: UTF8.self) else {
                throw CredentialFault(
                    "the file cannot be read as UTF-8 text; give `standard`, or the path of a YAML file of keys",
                    setting: "shape")
            }
            do {
                members = try ShapeFile.parse(text)
            } catch {
                throw CredentialFault("\(error)", setting: "shape")
            }
        }
        return try PushShape(members: members.map { ($0.key, $0.sources) })
    }

    /// Reads whole files, which are small: a modification time misses a change within one second.
    private func source(
        _ kind: any ProviderKind.Type,
        _ app: AppSettings,
        _ settings: [String: String]
    ) -> Source {
        var files: [String: [UInt8]] = [:]
        var paths = kind.files.compactMap { settings[$0] }
        if case .file(let path) = app.shape { paths.append(path) }
        for path in paths { files[path] = try? self.context.read(path) }
        return Source(settings: settings, shape: app.shape, files: files)
    }
}
