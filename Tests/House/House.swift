// Carillon · House.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing
import Yams

@testable import Operations

/// The checkout that the tests were built from.
enum House {
    static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    static func text(_ path: String) throws -> String {
        try String(contentsOf: Self.root.appending(path: path), encoding: .utf8)
    }

    /// All files in a folder and its subfolders, relative to the root.
    static func files(in folder: String) throws -> [String] {
        let names = try #require(FileManager.default.enumerator(atPath: Self.root.appending(path: folder).path))
        return names.compactMap { $0 as? String }.map { "\(folder)/\($0)" }.sorted()
    }

    /// All Swift files in a folder and its subfolders, relative to the root.
    static func swiftFiles(in folder: String) throws -> [String] {
        try Self.files(in: folder).filter { $0.hasSuffix(".swift") }
    }

    /// The modules that a Swift file imports.
    static func imports(of path: String) throws -> Set<String> {
        let pattern = #/^\s*(?:(?:@\w+(?:\([^)]*\))?|package|public|internal|private|fileprivate)\s+)*import\s+(.+)$/#
        let kinds: Set<Substring> = ["struct", "class", "enum", "protocol", "typealias", "func", "let", "var", "actor"]
        var modules: Set<String> = []
        for line in try Self.text(path).split(separator: "\n") {
            guard let match = line.wholeMatch(of: pattern) else { continue }
            let words = match.output.1.split { $0 == " " || $0 == "." || $0 == ";" }
            guard let module = words.first(where: { !kinds.contains($0) }) else { continue }
            modules.insert(String(module))
        }
        return modules
    }

    /// Runs a script of bash after libraries of `deploy/lib`, in an empty folder.
    ///
    /// - Parameter environment: the variables that the script gets besides `PATH`.
    /// - Returns: standard output with standard error, and the way that the script ended.
    static func run(
        _ script: String,
        libraries: [String],
        environment: [String: String] = [:]
    ) async throws -> (text: String, exit: ChildProcess.Exit) {
        let directory = try TemporaryDirectory("house")
        defer { directory.remove() }
        let folder = directory.file("folder")
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let lines =
            ["set -euo pipefail", "exec 2>&1", "cd '\(folder)'", "ROOT='\(Self.root.path)'"]
            + libraries.map { "source '\(Self.root.path)/deploy/lib/\($0).sh'" } + [script]
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        let variables = ["PATH=\(path)"] + environment.map { "\($0.key)=\($0.value)" }
        let process = try await ChildProcess.spawn(
            "env", ["-i"] + variables + ["bash", "-c", lines.joined(separator: "\n")], directory: directory.path)
        let exit = try await process.waitForExit()
        return (process.output(), exit)
    }
}

/// Files that operators deploy.
enum Deployment {
    /// Variables of other images, of Swift and of the compose file itself.
    static let foreign: Set<String> = [
        "POSTGRES_PASSWORD", "REDIS_MAXMEMORY", "GATEWAY_ADDRESS", "SWIFT_BACKTRACE", "CARILLON_VERSION",
    ]

    static func exists(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: House.root.appending(path: path).path)
    }

    /// The documents of a YAML file.
    static func documents(_ path: String) throws -> [YAMLValue] {
        try Self.parse(try House.text(path))
    }

    /// The documents of YAML text.
    static func parse(_ text: String) throws -> [YAMLValue] {
        try Yams.load_all(yaml: text).map { YAMLValue($0) }
    }

    /// The variables that the services read, taken from the source of the settings.
    static func knownVariables() throws -> Set<String> {
        let folder = "Sources/Shared/Operations/Settings"
        var names: Set<String> = ["TZDIR"]
        for file in try FileManager.default.contentsOfDirectory(atPath: House.root.appending(path: folder).path) {
            for match in try House.text("\(folder)/\(file)").matches(of: #/"([A-Z][A-Z0-9_]{3,})"/#) {
                names.insert(String(match.output.1))
            }
        }
        return names
    }

    /// Takes the place of the placeholder in the examples.
    static let secret = String(repeating: "s", count: 64)

    /// Faults of a service's configuration; does not read the files that the variables name.
    static func faults(_ variables: [String: String], of service: String) -> [String] {
        let reader = SettingsReader(variables)
        if service == "gateway" { _ = GatewaySettings(reader) } else { _ = DispatcherSettings(reader) }
        do throws(SettingsFaults) {
            try reader.finish()
            return []
        } catch {
            return error.faults
        }
    }

    /// The seconds that a service takes at most to stop.
    static func drain(_ service: String) throws -> Int {
        let name = service.prefix(1).uppercased() + service.dropFirst()
        let text = try House.text("Sources/\(name)/Command/\(name)Composition.swift")
        let match = try #require(text.firstMatch(of: #/stopsWithin: \.seconds\((\d+)\)/#))
        return try #require(Int(match.output.1))
    }
}

/// A value of a YAML document.
struct YAMLValue {
    let any: Any

    init(_ any: Any) { self.any = any }

    subscript(_ key: String) -> YAMLValue? { (self.any as? [String: Any])?[key].map { YAMLValue($0) } }

    var array: [YAMLValue] { (self.any as? [Any])?.map { YAMLValue($0) } ?? [] }
    var keys: Set<String> { Set((self.any as? [String: Any])?.keys.map { $0 } ?? []) }
    var int: Int? { self.any as? Int }
    var bool: Bool? { self.any as? Bool }
    /// The value as text; numbers and booleans too, because variables are text.
    var string: String? {
        switch self.any {
        case let text as String: text
        case let number as Int: String(number)
        case let truth as Bool: String(truth)
        default: nil
        }
    }
    var strings: [String] { self.array.compactMap(\.string) }
    /// The members as text.
    var variables: [String: String] {
        (self.any as? [String: Any] ?? [:]).compactMapValues { YAMLValue($0).string }
    }
}
