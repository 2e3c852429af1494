// Carillon · ZoneDatabase.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Synchronization

extension Timestamp {
    /// Returns the machine's time.
    ///
    /// Core reads no clock, so the programs pass this to it.
    package static func now() -> Timestamp {
        Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
    }
}

/// The machine's zoneinfo, by name.
package final class ZoneDatabase: Sendable {
    /// About the size of the IANA database; a full cache is cleared.
    private static let mostNames = 1_024
    private static let longestName = 64
    private static let largestFile = 262_144
    /// Entries of the folder that are not zones: copies with other leap seconds, and the machine's
    /// own settings.
    private static let others: Set<Substring> = ["posix", "right", "posixrules", "localtime"]

    /// The cached result of a lookup; no rules if there is no such zone.
    private struct Entry {
        let rules: ZoneRules?
        let digest: UInt64
        /// Whether a ``ZoneDatabase/refresh()`` has compared it with its file.
        var isChecked = false
    }

    private struct State {
        var entries: [String: Entry] = [:]
        var version: String?
    }

    private let folder: String
    private let state = Mutex(State())

    /// - Parameter folder: the folder of the files; if nil, the variable `TZDIR` or
    ///   `/usr/share/zoneinfo`.
    package init(folder: String? = nil) {
        self.folder = folder ?? ProcessInfo.processInfo.environment["TZDIR"] ?? "/usr/share/zoneinfo"
    }

    /// Returns the rules of an IANA zone or alias; nil if unknown.
    ///
    /// Caches the result until ``refresh()`` finds a change.
    package func rules(_ name: String) -> ZoneRules? {
        if let entry = self.state.withLock({ $0.entries[name] }) { return entry.rules }
        guard Self.isName(name) else { return nil }
        let entry = self.read(name)
        self.state.withLock { state in
            if state.entries.count >= Self.mostNames { state.entries = [:] }
            state.entries[name] = entry
        }
        return entry.rules
    }

    /// Returns the rules from the zone's file, without the cache.
    package func current(_ name: String) -> ZoneRules? {
        Self.isName(name) ? self.read(name).rules : nil
    }

    /// The version of the data, such as `2025b`; without one, a hash of the zone files.
    package var version: String {
        if let version = self.state.withLock({ $0.version }) { return version }
        let version = self.readVersion()
        self.state.withLock { $0.version = version }
        return version
    }

    /// Checks whether the data on disk has changed; if so, keeps only the unchanged zones cached.
    ///
    /// - Returns: the zones whose rules have not changed; nil if nothing has. Leaves out zones that
    ///   were first read since the last check, because their files may have changed before.
    package func refresh() -> Set<String>? {
        let (known, before) = self.state.withLock { ($0.entries, $0.version) }
        let version = self.readVersion()
        let unchanged = known.filter { name, entry in entry.digest == Self.digest(self.contents(name)) }
        let hasChanged = unchanged.count < known.count || before.map { $0 != version } ?? false
        self.state.withLock { state in
            state.version = version
            if hasChanged { state.entries = unchanged }
            for name in unchanged.keys { state.entries[name]?.isChecked = true }
        }
        return hasChanged ? Set(unchanged.filter { $0.value.rules != nil && $0.value.isChecked }.keys) : nil
    }

    // MARK: Files

    private static func isName(_ name: String) -> Bool {
        guard (1...Self.longestName).contains(name.utf8.count) else { return false }
        let isPlain = name.utf8.allSatisfy { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "/"), UInt8(ascii: "_"), UInt8(ascii: "-"),
                UInt8(ascii: "+"):
                true
            default: false
            }
        }
        // Without dots a path cannot leave its folder.
        guard isPlain else { return false }
        let parts = name.split(separator: "/", omittingEmptySubsequences: false)
        return !parts.contains("") && !Self.others.contains(parts[0])
    }

    private func read(_ name: String) -> Entry {
        let bytes = self.contents(name)
        return Entry(rules: bytes.flatMap { try? ZoneRules($0) }, digest: Self.digest(bytes))
    }

    private func contents(_ name: String) -> [UInt8]? {
        guard let data = FileManager.default.contents(atPath: "\(self.folder)/\(name)"),
            data.count <= Self.largestFile
        else { return nil }
        return Array(data)
    }

    private func readVersion() -> String {
        if let text = self.contents("+VERSION").map({ String(decoding: $0, as: UTF8.self) }) {
            let version = text.prefix { !$0.isNewline }
            if !version.isEmpty { return String(version.prefix(Self.longestName)) }
        }
        // The first line of the database's source, which Debian and others install, is "# version
        // 2025b".
        let mark = "# version "
        if let source = self.contents("tzdata.zi") {
            let line = String(decoding: source.prefix { $0 != 0x0A }, as: UTF8.self)
            if line.hasPrefix(mark) { return String(line.dropFirst(mark.count).prefix(Self.longestName)) }
        }
        let names = ((try? FileManager.default.subpathsOfDirectory(atPath: self.folder)) ?? []).filter(Self.isName)
        var hash = FNV1a.hash64([])
        for name in names.sorted() {
            guard let bytes = self.contents(name) else { continue }
            hash = FNV1a.hash64(name.utf8, from: FNV1a.hash64(bytes, from: hash))
        }
        return "files-" + String(hash, radix: 16)
    }

    private static func digest(_ bytes: [UInt8]?) -> UInt64 { bytes.map { FNV1a.hash64($0) } ?? 0 }
}
