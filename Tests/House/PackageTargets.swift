// Carillon · PackageTargets.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Testing

/// A source target of the package.
struct Room: Equatable {
    let name: String
    let path: String
    let isCLibrary: Bool
    /// The package's own targets that it depends on.
    let arrows: Set<String>

    var wing: String { self.path.split(separator: "/").dropFirst().first.map { String($0) } ?? "" }
}

/// The targets of `Package.swift`, as the package manager reads it.
enum PackageTargets {
    private struct Manifest: Decodable {
        let targets: [Target]
    }

    private struct Target: Decodable {
        let name: String
        let path: String?
        let type: String
        let dependencies: [Dependency]
    }

    /// `{"byName": [name, condition]}`, `{"target": …}` or `{"product": …}`.
    private struct Dependency: Decodable {
        let name: String?

        private enum Key: String, CodingKey {
            case byName, target
        }

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: Key.self)
            let key: Key? = container.contains(.byName) ? .byName : container.contains(.target) ? .target : nil
            guard let key else {
                self.name = nil
                return
            }
            var list = try container.nestedUnkeyedContainer(forKey: key)
            self.name = try list.decode(String.self)
        }
    }

    /// The targets under `Sources`.
    static func rooms() throws -> [Room] {
        let manifest = try JSONDecoder().decode(Manifest.self, from: self.dump())
        let named = Set(manifest.targets.map(\.name))
        return manifest.targets.compactMap { target in
            guard let path = target.path, path.hasPrefix("Sources/") else { return nil }
            let arrows = Set(target.dependencies.compactMap(\.name)).intersection(named)
            return Room(name: target.name, path: path, isCLibrary: target.type == "system", arrows: arrows)
        }
    }

    /// The package as JSON.
    ///
    /// A separate scratch folder avoids the lock that a running `swift test` holds.
    private static func dump() throws -> Data {
        let scratch = FileManager.default.temporaryDirectory.appending(path: "carillon-house-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: scratch) }
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = [
            "swift", "package", "--package-path", House.root.path, "--scratch-path", scratch.path, "dump-package",
        ]
        let output = Pipe()
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        try process.run()
        let bytes = try output.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        try #require(process.terminationStatus == 0, "swift package dump-package must work where the tests run")
        return bytes
    }
}
