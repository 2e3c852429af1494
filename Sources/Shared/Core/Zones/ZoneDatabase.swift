// Carillon · ZoneDatabase.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import Synchronization

/// The machine's zoneinfo, by name.
package final class ZoneDatabase: Sendable {
    /// About as many names as the IANA database has; when they are full, all are forgotten.
    private static let mostNames = 1_024
    private static let longestName = 64
    private static let largestFile = 262_144
    /// What stands beside the zones: copies of them by another count, and what names a file of the machine's own.
    private static let others: Set<Substring> = ["posix", "right", "posixrules", "localtime"]

    /// What a name stood for when it was looked up; no rules if it is none.
    private struct Entry {
        let rules: ZoneRules?
        let digest: UInt64
    }

    private struct State {
        var entries: [String: Entry] = [:]
        var version: String?
    }

    private let folder: String
    private let state = Mutex(State())

    /// - Parameter folder: where the files are; if nil, where the variable `TZDIR` says, as for other programs, or
    ///   `/usr/share/zoneinfo`.
    package init(folder: String? = nil) {
        self.folder = folder ?? ProcessInfo.processInfo.environment["TZDIR"] ?? "/usr/share/zoneinfo"
    }

    /// The rules of a zone of the IANA database, aliases included; nil if there is none of that name.
    ///
    /// What was found is kept until ``refresh()``.
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

    /// The rules of a zone as its file has them now, whatever is kept.
    package func current(_ name: String) -> ZoneRules? {
        Self.isName(name) ? self.read(name).rules : nil
    }

    /// The version of the data, such as `2025b`; if no file names it, a hash of the zones' files.
    package var version: String {
        if let version = self.state.withLock({ $0.version }) { return version }
        let version = self.readVersion()
        self.state.withLock { $0.version = version }
        return version
    }

    /// Looks whether the data on disk is another than before; if so, nothing that was read before is used again.
    package func refresh() -> Bool {
        let (known, before) = self.state.withLock { ($0.entries, $0.version) }
        let version = self.readVersion()
        let hasChanged =
            before.map { $0 != version } ?? false
            || known.contains { name, entry in entry.digest != Self.digest(self.contents(name)) }
        self.state.withLock { state in
            state.version = version
            if hasChanged { state.entries = [:] }
        }
        return hasChanged
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
        // "# version 2025b" is the first line of the database's source, which Debian and others install.
        let mark = "# version "
        if let source = self.contents("tzdata.zi") {
            let line = String(decoding: source.prefix { $0 != 0x0A }, as: UTF8.self)
            if line.hasPrefix(mark) { return String(line.dropFirst(mark.count).prefix(Self.longestName)) }
        }
        let names = ((try? FileManager.default.subpathsOfDirectory(atPath: self.folder)) ?? []).filter(Self.isName)
        var hash = Self.digest([])
        for name in names.sorted() {
            guard let bytes = self.contents(name) else { continue }
            hash = Self.digest(Array(name.utf8), from: Self.digest(bytes, from: hash))
        }
        return "files-" + String(hash, radix: 16)
    }

    /// FNV-1a: tells files apart, and no more is asked of it.
    private static func digest(_ bytes: [UInt8]?, from start: UInt64 = 0xCBF2_9CE4_8422_2325) -> UInt64 {
        guard let bytes else { return 0 }
        return bytes.reduce(start) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
    }
}
