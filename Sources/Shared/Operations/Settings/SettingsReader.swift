// Carillon · SettingsReader.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Logging

/// Reads variables and collects every fault, so that one start reports them all.
package final class SettingsReader {
    private let environment: [String: String]
    /// Variables from a file; the environment takes precedence.
    private let file: [String: String]
    private var faults: [String] = []
    /// The names that were read.
    private var known: Set<String> = []

    init(_ environment: [String: String], file: [String: String] = [:]) {
        self.environment = environment
        self.file = file
    }

    /// Reads the environment, and a file of `NAME=value` lines for variables that it does not set.
    ///
    /// - Throws: ``SettingsFaults`` if the file cannot be read.
    static func process(file: String?) throws(SettingsFaults) -> SettingsReader {
        let environment = ProcessInfo.processInfo.environment
        guard let file else { return SettingsReader(environment) }
        guard let bytes = FileManager.default.contents(atPath: file) else {
            throw SettingsFaults(faults: ["--config: \(file) cannot be read"])
        }
        let lines = SettingsFile(String(decoding: bytes, as: UTF8.self))
        let reader = SettingsReader(environment, file: lines.variables)
        for number in lines.exports {
            reader.fault("--config:", "line \(number) of \(file) begins with export; remove that word")
        }
        return reader
    }

    /// Records a fault.
    package func fault(_ name: String, _ reason: String) {
        let fault = "\(name) \(reason)"
        // Several settings may read the same variable.
        if !self.faults.contains(fault) { self.faults.append(fault) }
    }

    /// Records that the target of a variable cannot be used, unless the variable itself is faulty.
    package func unusable(_ name: String, _ reason: String) {
        let beginning = "\(name) cannot be used: "
        let isFaulty = self.faults.contains { $0.hasPrefix("\(name) ") && !$0.hasPrefix(beginning) }
        if !isFaulty { self.fault(name, "cannot be used: \(reason)") }
    }

    /// The faults so far, for callers that continue despite them.
    package var found: [String] { self.faults }

    /// Misspelt names in the file, each with the setting that it probably means.
    ///
    /// Reports only names that are one edit from a setting, because apps may share the file:
    /// `REDIS_PORT` is two edits from `REDIS_PARTS`.
    var misspellings: [(name: String, meant: String)] {
        guard !self.file.isEmpty else { return [] }
        let known = Self.names
        let sorted = known.sorted()
        return self.file.keys.sorted().filter { !known.contains($0) }.compactMap { name in
            Spelling.closest(to: name.uppercased(), of: sorted, within: 1).map { (name: name, meant: $0) }
        }
    }

    /// Logs ``misspellings``.
    package func logMisspellings(_ logger: Logger) {
        for (name, meant) in self.misspellings {
            logger.warning(
                "ignored an unknown setting in the file of --config",
                metadata: ["setting": "\(name)", "reason": "did you mean \(meant)?"])
        }
    }

    /// The names of all settings of both programs, which share files.
    private static var names: Set<String> {
        let reader = SettingsReader([:])
        _ = GatewaySettings(reader)
        _ = DispatcherSettings(reader)
        return reader.known
    }

    /// Returns a variable's text; nil if unset or empty.
    package func text(_ name: String) -> String? {
        self.known.insert(name)
        guard let text = self.environment[name] ?? self.file[name], !text.isEmpty else { return nil }
        return text
    }

    /// Parses a variable and records an error as its fault; returns `fallback` if unset.
    func value<Value>(
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

    /// Reads an HTTP URL and removes a slash at its end; nil if unset.
    ///
    /// - Parameters:
    ///   - refused: characters that it must not have.
    ///   - rule: the error for any other text.
    func url(_ name: String, without refused: String, or rule: String) -> String? {
        self.value(name, default: nil) { text -> String? in
            let isURL =
                (text.hasPrefix("https://") || text.hasPrefix("http://"))
                && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !refused.utf8.contains($0) }
            guard isURL else { throw FieldFault(rule) }
            return text.hasSuffix("/") ? String(text.dropLast()) : text
        }
    }

    /// Reads a signing secret; nil if it is unset or too short.
    func secret(_ name: String) -> String? {
        self.value(name, default: nil) { text -> String? in
            guard text.utf8.count >= 32 else { throw FieldFault("must have at least 32 bytes (RFC 7518 section 3.2)") }
            return text
        }
    }

    /// Reads a whole number in a range.
    func integer(_ name: String, default fallback: Int, in range: ClosedRange<Int>) -> Int {
        guard let text = self.text(name) else { return fallback }
        guard let value = Int(text), range.contains(value) else {
            self.fault(name, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
            return fallback
        }
        return value
    }

    /// Reads a limit; nil if it is 0, which means none.
    func limit(_ name: String, default fallback: Int, in range: ClosedRange<Int>) -> Int? {
        let value = self.integer(name, default: fallback, in: range)
        return value > 0 ? value : nil
    }

    /// Reads `on` or `off`.
    func isOn(_ name: String, default fallback: Bool) -> Bool {
        self.choice(name, default: fallback ? Switch.on : Switch.off) == .on
    }

    private enum Switch: String, CaseIterable {
        case off, on
    }

    /// Reads one of an enum's raw values.
    func choice<Value: RawRepresentable<String> & CaseIterable>(
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

    /// Loads the target of a variable, such as a file; an error is recorded as its fault.
    ///
    /// - Returns: nil if the variable is unset or the load failed.
    package func load<Value>(_ name: String, isSet: Bool, _ load: () async throws -> Value) async -> Value? {
        guard isSet else { return nil }
        do {
            return try await load()
        } catch {
            self.unusable(name, "\(error)")
            return nil
        }
    }

    /// Finishes reading.
    ///
    /// - Throws: ``SettingsFaults`` if there are any.
    package func finish() throws(SettingsFaults) {
        guard self.faults.isEmpty else { throw SettingsFaults(faults: self.faults) }
    }

    /// Finishes reading and returns the loaded value.
    ///
    /// - Throws: ``SettingsFaults`` if there are any, or if nothing was loaded.
    package func finish<Value>(_ loaded: Value?) throws(SettingsFaults) -> Value {
        guard self.faults.isEmpty, let loaded else { throw SettingsFaults(faults: self.faults) }
        return loaded
    }
}

/// The lines of a settings file, read as systemd reads an `EnvironmentFile`, but without escapes.
struct SettingsFile {
    private(set) var variables: [String: String] = [:]
    /// The numbers of lines that begin with `export`, which only a shell understands.
    private(set) var exports: [Int] = []

    init(_ text: String) {
        let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
        for (index, whole) in lines.enumerated() {
            let line = Self.trimmed(whole)
            guard let equals = line.firstIndex(of: "="), !line.hasPrefix("#"), !line.hasPrefix(";") else { continue }
            let name = Self.trimmed(line[..<equals])
            let words = name.split(whereSeparator: \.isWhitespace)
            if words.count > 1, words.first == "export" {
                self.exports.append(index + 1)
            } else if !name.isEmpty {
                self.variables[String(name)] = Self.unquoted(Self.trimmed(line[line.index(after: equals)...]))
            }
        }
    }

    /// Removes one pair of quotes around a value.
    private static func unquoted(_ value: Substring) -> String {
        guard value.count >= 2, let quote = value.first, quote == "\"" || quote == "'", value.last == quote else {
            return String(value)
        }
        return String(value.dropFirst().dropLast())
    }

    private static func trimmed(_ text: Substring) -> Substring {
        let start = text.drop(while: \.isWhitespace)
        return start.lastIndex { !$0.isWhitespace }.map { start[...$0] } ?? ""
    }
}

/// All faults of a configuration.
///
/// Names variables and their rules, never their values.
package struct SettingsFaults: Error, Sendable, Equatable, CustomStringConvertible {
    let faults: [String]

    package var description: String {
        "the configuration has \(self.faults.count == 1 ? "a fault" : "\(self.faults.count) faults"):\n"
            + self.faults.map { "  \($0)" }.joined(separator: "\n")
    }
}
