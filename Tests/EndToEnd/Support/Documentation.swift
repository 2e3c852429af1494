// Carillon · Documentation.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Sandbox
import Support

@testable import Clients
@testable import HTTP

/// A fenced block of a page, with the instructions in the comment right above it.
///
/// `<!-- run -->`, `<!-- run: prints "text"; notifies ada "title"; app -->` or `<!-- not run: why
/// -->`; readers of the page do not see it.
struct Snippet: Sendable {
    enum Fate: Equatable, Sendable {
        case run
        case notRun(reason: String)
        case unmarked
    }

    /// A notification that the block must cause.
    struct Notice: Equatable, Sendable {
        let user: String
        let title: String
    }

    let language: String
    let text: String
    /// The line of the opening fence, from 1.
    let line: Int
    let fate: Fate
    /// Lines that the program must print.
    let prints: [String]
    let notices: [Notice]
    /// The block's own application database, if it has one, with tables from a file if one is
    /// named.
    let app: App?
    /// Files of the checkout that go before and after the block's text.
    let frame: Frame

    struct Frame: Equatable, Sendable {
        var before: String?
        var after: String?
    }

    enum App: Equatable, Sendable {
        case empty
        case schema(String)
    }

    private init(language: String, text: String, line: Int, comment: String?) throws {
        self.language = Self.names[language] ?? language
        self.text = text
        self.line = line
        var prints: [String] = []
        var notices: [Notice] = []
        var app: App?
        var frame = Frame()
        guard let comment, let match = comment.wholeMatch(of: #/<!-- (run|not run)(?:: (.*))? -->/#) else {
            (self.fate, self.prints, self.notices, self.app, self.frame) = (.unmarked, [], [], nil, frame)
            return
        }
        let words = String(match.output.2 ?? "")
        if match.output.1 == "not run" {
            self.fate = words.isEmpty ? .unmarked : .notRun(reason: words)
        } else {
            self.fate = .run
            for word in words.split(separator: "; ") {
                if let print = word.wholeMatch(of: #/prints "(.+)"/#) {
                    prints.append(Self.unquoted(print.output.1))
                } else if let notice = word.wholeMatch(of: #/notifies (\S+) "(.+)"/#) {
                    notices.append(Notice(user: String(notice.output.1), title: Self.unquoted(notice.output.2)))
                } else if let file = word.wholeMatch(of: #/app(?: (\S+))?/#) {
                    app = file.output.1.map { .schema(String($0)) } ?? .empty
                } else if let file = word.wholeMatch(of: #/before (\S+)/#) {
                    frame.before = String(file.output.1)
                } else if let file = word.wholeMatch(of: #/after (\S+)/#) {
                    frame.after = String(file.output.1)
                } else {
                    throw SnippetFault(line: line, text: "unknown instruction: \(word)")
                }
            }
        }
        (self.prints, self.notices, self.app, self.frame) = (prints, notices, app, frame)
    }

    private static func unquoted(_ text: Substring) -> String { String(text).replacing(#"\""#, with: "\"") }

    private static let names = ["bash": "sh", "js": "javascript", "mjs": "javascript", "py": "python"]

    /// Languages whose blocks must say whether they run.
    static let languages: Set<String> = ["sh", "sql", "python", "javascript", "go", "swift"]

    /// The blocks of a page, in order.
    static func all(of page: String) throws -> [Snippet] {
        let lines = page.split(separator: "\n", omittingEmptySubsequences: false)
        var snippets: [Snippet] = []
        var index = 0
        while index < lines.count {
            defer { index += 1 }
            guard lines[index].hasPrefix("```") else { continue }
            let first = index
            let language = String(lines[first].dropFirst(3))
            index += 1
            while index < lines.count, lines[index] != "```" { index += 1 }
            guard index < lines.count else { throw SnippetFault(line: first + 1, text: "has no closing fence") }
            snippets.append(
                try Snippet(
                    language: language,
                    text: lines[(first + 1)..<index].joined(separator: "\n") + "\n",
                    line: first + 1,
                    comment: first > 0 ? String(lines[first - 1]) : nil
                ))
        }
        return snippets
    }
}

/// A fault in a block or in its comment.
struct SnippetFault: Error {
    let line: Int
    let text: String
}

enum Pages {
    /// The paths of all pages, relative to the checkout.
    static func all() throws -> [String] {
        let folders = try FileManager.default.subpathsOfDirectory(atPath: Stack.checkout.appending(path: "docs").path)
        return ["README.md"] + folders.filter { $0.hasSuffix(".md") }.map { "docs/\($0)" }.sorted()
    }

    static func snippets(_ path: String) throws -> [Snippet] {
        try Snippet.all(of: try Stack.text(path))
    }

    /// The blocks of one language on a page, joined into one program in reading order.
    static func program(_ parts: [Snippet]) throws -> String {
        let before = try parts.compactMap(\.frame.before).map { try Stack.text($0) }
        let after = try parts.compactMap(\.frame.after).map { try Stack.text($0) }
        return (before + parts.map(\.text) + after).joined(separator: "\n")
    }

    /// Pages with blocks that run.
    static func running() -> [String] {
        let pages = (try? Self.all()) ?? []
        return pages.filter { path in (try? Self.snippets(path))?.contains { $0.fate == .run } == true }
    }
}

/// A checkout as a developer has it after `deploy/up`, to run the commands of the pages in.
struct Workbench {
    let stack: Stack
    let gateway: Gateway
    let directory: String
    private let variables: [String: String]

    /// Starts both programs and lays out the folders of the checkout, `.local/env` and the
    /// programs.
    static func open(_ stack: Stack, settings: [String: String] = [:]) async throws -> Workbench {
        // The webhook receivers run on this machine.
        let settings = stack.mailSettings().merging(["WEBHOOKS_PRIVATE": "on"]) { $1 }.merging(settings) { $1 }
        let gateway = try await stack.startBoth(environment: settings)
        var variables = try await stack.developerVariables(gateway)
        let directory = stack.directory.file("checkout")
        let files = FileManager.default
        for folder in ["", "/.local", "/.build"] {
            try files.createDirectory(atPath: directory + folder, withIntermediateDirectories: true)
        }
        for name in ["clients", "deploy", "docs", "examples", "Tests"] {
            try files.createSymbolicLink(
                atPath: "\(directory)/\(name)", withDestinationPath: Stack.checkout.appending(path: name).path)
        }
        try files.createSymbolicLink(
            atPath: "\(directory)/.build/release", withDestinationPath: TestProducts.directory)
        try await Self.addClients(to: directory)
        try Stack.write(variables, into: "\(directory)/.local")
        variables["USER_TOKEN"] = Stack.token(user: "ada")
        variables["ADMIN_TOKEN"] = Stack.token(user: "operator", scope: .admin)
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        variables["PATH"] = "\(TestProducts.directory):\(path)"
        variables["PYTHONUNBUFFERED"] = "1"
        variables["PYTHONPATH"] = Stack.checkout.appending(path: "clients/python/src").path
        // Makes the user of the pages known, so that a broadcast has an audience.
        try await gateway.set(#"{"email":"ada@example.com"}"#, of: "ada")
        return Workbench(stack: stack, gateway: gateway, directory: directory, variables: variables)
    }

    /// Makes the packages of `clients` available to programs in the folder, as their READMEs do.
    private static func addClients(to directory: String) async throws {
        let clients = Stack.checkout.appending(path: "clients").path
        try FileManager.default.createDirectory(
            atPath: "\(directory)/node_modules", withIntermediateDirectories: true)
        for (name, folder) in [("carillon", "javascript"), ("carillon-web", "web")] {
            try FileManager.default.createSymbolicLink(
                atPath: "\(directory)/node_modules/\(name)", withDestinationPath: "\(clients)/\(folder)")
        }
        if Commands.haveNodeWithSockets() {
            let process = try await ChildProcess.spawn(
                "node", ["\(clients)/web/pack.mjs"], name: "pack", directory: directory)
            let exit = try await process.waitForExit()
            guard exit == .code(0) else { throw FixtureError("clients/web/pack.mjs failed: \(process.errors())") }
        }
        let module = "module page\n\ngo 1.19\n\nrequire carillon v0.0.0\n\nreplace carillon => \(clients)/go\n"
        try Data(module.utf8).write(to: URL(filePath: "\(directory)/go.mod"))
    }

    /// Runs a command of a shell with the variables of the stack, and returns its output.
    func run(_ script: String, in folder: String) async throws -> (exit: ChildProcess.Exit, output: String) {
        let process = try await ChildProcess.spawn(
            "env", ["-C", folder, "bash", "-euo", "pipefail", "-c", script], name: "run-\(UUID().uuidString)",
            environment: self.variables, directory: self.stack.directory.path)
        let exit = try await process.waitForExit(within: .seconds(300))
        return (exit, process.output() + process.errors())
    }

    /// Starts a program in a language; returns nil and reports it if the language is not installed.
    func start(
        _ language: String,
        _ text: String,
        name: String,
        environment: [String: String] = [:]
    ) async throws -> ChildProcess? {
        let suffixes = ["sh": "sh", "sql": "sql", "python": "py", "javascript": "mjs", "go": "go", "swift": "swift"]
        guard let suffix = suffixes[language] else { throw FixtureError("no command runs \(language)") }
        let file = "\(self.directory)/\(name).\(suffix)"
        try Data(text.utf8).write(to: URL(filePath: file))
        let database = self.variables["DATABASE_URL"] ?? ""
        let commands = [
            "sh": ["bash", "-euo", "pipefail", file],
            "sql": ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-f", file, database],
            "python": [PythonClient.interpreter, file],
            // Node 20 has WebSockets only with this option.
            "javascript": ["node", "--experimental-websocket", file],
            "go": ["go", "run", file],
            "swift": ["swiftc", "-typecheck", "-swift-version", "6", "-parse-as-library", file],
        ]
        guard var command = commands[language], Self.has(language) else { return nil }
        command = ["-C", self.directory] + command
        return try await ChildProcess.spawn(
            "env",
            command,
            name: name,
            environment: self.variables.merging(environment) { $1 },
            directory: self.stack.directory.path
        )
    }

    /// Whether a language and the modules that the pages import are installed; reports what is
    /// missing.
    private static func has(_ language: String) -> Bool {
        switch language {
        case "python": ["redis", "psycopg", "websockets", "socketio"].allSatisfy { PythonClient.has($0) }
        case "javascript": Commands.haveNodeWithSockets()
        case "go": Commands.have("go")
        case "swift": Commands.have("swiftc")
        case "sql": Commands.have("psql")
        default: Commands.have("bash", "psql", "redis-cli", "curl")
        }
    }

    /// Waits until a user has a notification with this title.
    func waitForNotice(_ notice: Snippet.Notice) async throws {
        try await eventually("\(notice.user) is notified: \(notice.title)") {
            try await self.stack.statuses(user: notice.user)[notice.title] != nil
        }
    }
}

extension Stack {
    /// The variables that `deploy/up` writes for a developer's own programs.
    func developerVariables(_ gateway: Gateway) async throws -> [String: String] {
        var variables = self.environment
        variables["GATEWAY_URL"] = "http://127.0.0.1:\(gateway.port)"
        variables["SANDBOX_URL"] = self.sandbox.controlURL
        variables["CARILLON_BIN"] = TestProducts.directory
        variables["CARILLON_DATA"] = self.directory.path
        variables["SERVICE_TOKEN"] = Self.token(user: "upstream", scope: .service)
        return variables
    }

    /// Writes variables into the file `env` of a folder, as `deploy/up` does.
    static func write(_ variables: [String: String], into folder: String) throws {
        let lines = variables.map { "export \($0.key)='\($0.value.replacing("'", with: #"'\''"#))'\n" }.sorted()
        try Data(lines.joined().utf8).write(to: URL(filePath: "\(folder)/env"))
    }

    /// Copies the example catalog with one text replaced and returns the setting that names it.
    func catalog(replacing text: String, with other: String) throws -> [String: String] {
        let source = Self.checkout.appending(path: "examples/catalog.d")
        let copy = self.directory.file("catalog.d")
        try FileManager.default.createDirectory(atPath: copy, withIntermediateDirectories: true)
        for name in try FileManager.default.contentsOfDirectory(atPath: source.path) {
            let content = try String(contentsOf: source.appending(path: name), encoding: .utf8)
            try Data(content.replacing(text, with: other).utf8).write(to: URL(filePath: "\(copy)/\(name)"))
        }
        return ["CATALOG": copy]
    }
}
