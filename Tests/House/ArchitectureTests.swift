// Carillon · ArchitectureTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

@Suite("Architecture", .timeLimit(.minutes(10)))
struct ArchitectureTests {
    @Test("docs/architecture.md lists the modules and imports of Package.swift")
    func documented() async throws {
        let document = try ArchitectureDocument()
        let modules = try await PackageTargets.modules()
        #expect(modules.count > 10)
        #expect(Set(document.entries.map(\.name)) == Set(modules.map(\.name)))
        #expect(document.entries.count == modules.count, "a module is listed twice")
        for module in modules {
            let listed = document.entries.first { $0.name == module.name }?.dependencies ?? []
            #expect(Set(listed) == module.dependencies, "imports of \(module.name)")
            #expect(listed.count == module.dependencies.count, "an import of \(module.name) is listed twice")
        }
    }

    @Test("modules only import modules further down the list, and each has a description")
    func layers() throws {
        let document = try ArchitectureDocument()
        for (place, entry) in document.entries.enumerated() {
            let below = Set(document.entries.dropFirst(place + 1).map(\.name))
            let upward = entry.dependencies.filter { !below.contains($0) }
            #expect(upward.isEmpty, "\(entry.name) imports \(upward) above it")
            #expect(!entry.description.isEmpty, "\(entry.name) has no description")
        }
    }

    @Test("gateway and dispatcher never depend on each other, and shared modules on neither")
    func programs() async throws {
        let modules = try await PackageTargets.modules()
        var areas: [String: String] = [:]
        for module in modules { areas[module.name] = module.area }
        #expect(Set(areas.values) == ["Gateway", "Dispatcher", "Shared"])
        for module in modules {
            for dependency in module.dependencies {
                #expect(
                    areas[dependency] == "Shared" || areas[dependency] == module.area, "\(module.name) → \(dependency)")
            }
        }
    }

    @Test("sources import exactly the modules that Package.swift declares")
    func imports() async throws {
        let modules = try await PackageTargets.modules()
        let ours = Set(modules.map(\.name))
        for module in modules where !module.isCLibrary {
            var imported: Set<String> = []
            for file in try House.swiftFiles(in: module.path) { imported.formUnion(try House.imports(of: file)) }
            imported.formIntersection(ours)
            #expect(imported == module.dependencies, "imports of \(module.name)")
        }
    }

    @Test("CONTRIBUTING.md lists the files of each source folder")
    func folders() throws {
        var listed: [String: Set<String>] = [:]
        for row in try House.text("CONTRIBUTING.md").split(separator: "\n") {
            guard let folder = row.prefixMatch(of: #/\| \[[^\]]+\]\((Sources\/[^)]+)\) \|/#)?.output.1 else { continue }
            listed[String(folder)] = Set(row.matches(of: #/`(\w+)`/#).map { String($0.output.1) })
        }
        #expect(listed.count > 40)
        let files = try House.swiftFiles(in: "Sources").map { URL(filePath: $0) }
        let present = Dictionary(grouping: files) { $0.deletingLastPathComponent().relativePath }
        for (folder, files) in present {
            let names = Set(files.map { $0.deletingPathExtension().lastPathComponent })
            #expect(names.subtracting(listed[folder] ?? []) == [], "\(folder)")
        }
    }

    @Test("Core does no I/O")
    func pureCore() throws {
        let pure: Set = ["Crypto", "DequeModule", "FoundationEssentials", "Mustache", "Synchronization", "Yams"]
        for file in try House.swiftFiles(in: "Sources/Shared/Core") {
            #expect(try House.imports(of: file).subtracting(pure) == [], "\(file)")
            let text = try House.text(file)
            for name in ["FileManager", "ProcessInfo", "ContinuousClock", "Date.now"] {
                #expect(!text.contains(name), "\(file) uses \(name)")
            }
        }
    }

    @Test("each C library is imported by exactly one module")
    func cLibraries() async throws {
        let modules = try await PackageTargets.modules()
        let libraries = modules.filter(\.isCLibrary)
        #expect(libraries.count >= 3)
        for library in libraries {
            let importers = try modules.filter { module in
                guard !module.isCLibrary else { return false }
                return try House.swiftFiles(in: module.path).contains {
                    try House.imports(of: $0).contains(library.name)
                }
            }
            #expect(importers.count == 1, "\(library.name) is imported by \(importers.map(\.name))")
            #expect(library.name.hasPrefix("C"))
        }
    }
}

@Suite("Source files", .timeLimit(.minutes(10)))
struct SourceFileTests {
    @Test("every Swift file begins with its name and its licence", arguments: ["Sources", "Tests"])
    func headers(folder: String) throws {
        let files = try House.swiftFiles(in: folder)
        #expect(files.count > 50)
        for file in files {
            let name = file.split(separator: "/").last ?? ""
            let lines = try House.text(file).split(separator: "\n", maxSplits: 2, omittingEmptySubsequences: false)
            #expect(lines.prefix(2) == ["// Carillon · \(name)", "// SPDX-License-Identifier: Apache-2.0"], "\(file)")
        }
    }

    @Test("no source file is longer than 800 lines")
    func lengths() throws {
        for file in try House.swiftFiles(in: "Sources") {
            let count = try House.text(file).count { $0.isNewline }
            #expect(count <= 800, "\(file) has \(count) lines")
        }
    }

    @Test(
        "comments fit in 100 columns and do not begin with a noun clause",
        arguments: ["Sources", "Tests", "clients", "deploy", "examples"])
    func comments(folder: String) throws {
        let openings: Set<Substring> = [
            "What", "Whom", "Whoever", "That", "Who", "Nobody", "Of", "By", "Whose", "Whatever", "Whichever",
        ]
        // One word, and configuration that is commented out (`key: {…}`), cannot wrap.
        let unwrappable = #/\S+ +(?:\S+|[\w.\-]+: [\[{].*)/#
        var faults: [String] = []
        for file in try House.files(in: folder) {
            for (number, line) in try CommentLines.lines(of: file) {
                let comment = line.drop { $0.isWhitespace }
                if line.count > 100, comment.wholeMatch(of: unwrappable) == nil {
                    faults.append("\(file):\(number): longer than 100 columns")
                }
                // After the marks of a comment and of a list. No regular expression: for all lines
                // it would take as long as the other tests of this folder together.
                let words = comment.drop { "/*#- ".contains($0) }
                if openings.contains(words.prefix { $0 != " " }) {
                    faults.append("\(file):\(number): begins with a noun clause")
                }
            }
        }
        #expect(faults.isEmpty, "\(faults.joined(separator: "\n"))")
    }

    @Test("declarations are package or narrower, never public")
    func noPublic() throws {
        for file in try House.swiftFiles(in: "Sources") {
            let declarations = try House.text(file).split(separator: "\n").filter { line in
                line.contains(#/^\s*(?:@\w+\s+)*(?:public|open)\s/#)
            }
            #expect(declarations.isEmpty, "\(file)")
        }
    }
}

/// The comments of source files.
enum CommentLines {
    /// The beginning of a line that is a comment, by a file's extension.
    private static let marks = [
        "swift": "//", "c": "//", "h": "//", "js": "//", "mjs": "//", "ts": "//", "go": "//", "css": "/*", "sql": "--",
        "lua": "--",
        "sh": "#", "yaml": "#", "py": "#", "conf": "#", "cfg": "#", "service": "#", "example": "#",
    ]
    /// The extensions of files with comments from `/*` to `*/`.
    private static let withBlocks: Set = ["c", "h", "js", "mjs", "ts", "css"]
    /// Scripts without an extension, whose comments begin with `#`.
    private static let scripts: Set = [
        "Caddyfile", "Dockerfile", "bench", "health", "package", "rehearse", "release", "run", "site", "steps",
        "test", "up", "upgrade-test",
    ]

    /// Returns the lines that are comments, with their numbers; none for other kinds of files.
    static func lines(of file: String) throws -> [(number: Int, text: Substring)] {
        let name = String(file.split(separator: "/").last ?? "")
        let kind = name.contains(".") ? String(name.split(separator: ".").last ?? "") : ""
        guard let mark = Self.marks[kind] ?? (Self.scripts.contains(name) ? "#" : nil) else { return [] }
        let hasBlocks = Self.withBlocks.contains(kind)
        var isInBlock = false
        var found: [(number: Int, text: Substring)] = []
        let lines = try House.text(file).split(separator: "\n", omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            let text = line.drop { $0.isWhitespace }
            if hasBlocks, text.hasPrefix("/*") { isInBlock = true }
            if isInBlock || text.hasPrefix(mark) { found.append((index + 1, line)) }
            if isInBlock, text.contains("*/") { isInBlock = false }
        }
        return found
    }
}

/// The modules and their imports as `docs/architecture.md` lists them.
struct ArchitectureDocument {
    struct Entry {
        let name: String
        let dependencies: [String]
        /// The description on the line below.
        let description: String
    }

    let entries: [Entry]

    init() throws {
        let lines = try House.text("docs/architecture.md").split(separator: "\n", omittingEmptySubsequences: false)
        let first = try #require(lines.firstIndex(of: "## Modules"))
        var entries: [Entry] = []
        for (index, line) in lines.enumerated() where index > first {
            guard let match = line.wholeMatch(of: #/- (\w+)(?: → (.+))?/#) else { continue }
            let dependencies = match.output.2?.split(separator: ", ").map { String($0) } ?? []
            let below = index + 1 < lines.count ? lines[index + 1] : ""
            let description = below.hasPrefix("  ") ? String(below.drop { $0 == " " }) : ""
            entries.append(Entry(name: String(match.output.1), dependencies: dependencies, description: description))
        }
        self.entries = entries
    }
}

/// A source target of the package.
struct Module: Equatable {
    let name: String
    let path: String
    let isCLibrary: Bool
    /// The package's own targets that it depends on.
    let dependencies: Set<String>

    var area: String { self.path.split(separator: "/").dropFirst().first.map { String($0) } ?? "" }
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

    private static let loaded = Task { try await Self.load() }

    /// The targets under `Sources`, read once.
    static func modules() async throws -> [Module] {
        try await self.loaded.value
    }

    private static func load() async throws -> [Module] {
        let manifest = try JSONDecoder().decode(Manifest.self, from: await self.dump())
        let named = Set(manifest.targets.map(\.name))
        return manifest.targets.compactMap { target in
            guard let path = target.path, path.hasPrefix("Sources/") else { return nil }
            let dependencies = Set(target.dependencies.compactMap(\.name)).intersection(named)
            return Module(
                name: target.name, path: path, isCLibrary: target.type == "system", dependencies: dependencies)
        }
    }

    /// The package as JSON.
    ///
    /// A separate scratch folder avoids the lock that a running `swift test` holds.
    private static func dump() async throws -> Data {
        let directory = try TemporaryDirectory("house")
        defer { directory.remove() }
        let process = try await ChildProcess.spawn(
            "swift",
            [
                "package", "--package-path", House.root.path, "--scratch-path", directory.file("scratch"),
                "dump-package",
            ],
            directory: directory.path)
        guard try await process.waitForExit() == .code(0) else {
            throw FixtureError("swift package dump-package must work where the tests run: \(process.tail())")
        }
        return Data(process.output().utf8)
    }
}
