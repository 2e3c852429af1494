// Carillon · SettingsReader.swift
// SPDX-License-Identifier: Apache-2.0

import Configuration
import SystemPackage

/// Reads variables and collects every fault, so that one start names them all.
package final class SettingsReader {
    private let config: ConfigReader
    private var faults: [String] = []

    private init(_ config: ConfigReader) {
        self.config = config
    }

    /// Reads the environment, and a file of `NAME=value` lines for what the environment leaves open.
    ///
    /// - Throws: ``SettingsFaults`` if the file cannot be read.
    package static func process(file: String?) async throws(SettingsFaults) -> SettingsReader {
        var providers: [any ConfigProvider] = [EnvironmentVariablesProvider()]
        if let file {
            do {
                providers.append(try await EnvironmentVariablesProvider(environmentFilePath: FilePath(file)))
            } catch {
                throw SettingsFaults(faults: ["--config: \(file) cannot be read"])
            }
        }
        return SettingsReader(ConfigReader(providers: providers))
    }

    /// Reads given variables, for tests.
    package static func variables(_ variables: [String: String]) -> SettingsReader {
        SettingsReader(ConfigReader(provider: EnvironmentVariablesProvider(environmentVariables: variables)))
    }

    /// Notes a fault.
    package func fault(_ name: String, _ reason: String) {
        let fault = "\(name) \(reason)"
        // A variable may be read for several parts.
        if !self.faults.contains(fault) { self.faults.append(fault) }
    }

    /// What has been found so far, for who goes on in spite of it.
    package var found: [String] { self.faults }

    /// A variable's text; nil if it is not set or empty.
    package func text(_ name: String) -> String? {
        let key = ConfigKey(name.lowercased().split(separator: "_").map { String($0) })
        guard let text = self.config.string(forKey: key, isSecret: true), !text.isEmpty else { return nil }
        return text
    }

    /// A variable's value by `parse`, whose error becomes the fault; `fallback` if it is not set.
    package func value<Value>(
        _ name: String,
        default fallback: Value,
        _ parse: (String) throws -> Value
    ) -> Value {
        guard let text = self.text(name) else { return fallback }
        do {
            return try parse(text)
        } catch {
            self.fault(name, "\(error)")
            return fallback
        }
    }

    /// A whole number in a range.
    package func integer(_ name: String, default fallback: Int, in range: ClosedRange<Int>) -> Int {
        guard let text = self.text(name) else { return fallback }
        guard let value = Int(text), range.contains(value) else {
            self.fault(name, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
            return fallback
        }
        return value
    }

    /// One of an enum's raw values.
    package func choice<Value: RawRepresentable<String> & CaseIterable>(
        _ name: String,
        default fallback: Value
    ) -> Value {
        guard let text = self.text(name) else { return fallback }
        guard let value = Value(rawValue: text) else {
            self.fault(name, "must be one of " + Value.allCases.map(\.rawValue).joined(separator: ", "))
            return fallback
        }
        return value
    }

    /// Loads what a variable names, such as a file; an error becomes its fault.
    ///
    /// - Returns: nil if the variable is not set or its load failed.
    package func load<Value>(_ name: String, isSet: Bool, _ load: () async throws -> Value) async -> Value? {
        guard isSet else { return nil }
        do {
            return try await load()
        } catch {
            self.fault(name, "cannot be used: \(error)")
            return nil
        }
    }

    /// Ends the reading.
    ///
    /// - Throws: ``SettingsFaults`` if there was any.
    package func finish() throws(SettingsFaults) {
        guard self.faults.isEmpty else { throw SettingsFaults(faults: self.faults) }
    }
}
